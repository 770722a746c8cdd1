// SPDX-License-Identifier: Apache-2.0
// What the page "Try it" does: it reads the form, asks the compiled library, and shows the answers. It computes no bits itself.
"use strict";

/// The library, from the bytes of its WebAssembly: functions that return what browser.cpp answers, or throw its messages.
async function startLibrary(bytes) {
  const module = await WebAssembly.compile(bytes);
  let exports = null;
  let refused = "";
  const textAt = (at) => {
    const memory = new Uint8Array(exports.memory.buffer);
    return new TextDecoder().decode(memory.slice(at, memory.indexOf(0, at)));
  };
  const nothing = new Proxy({}, { get: () => () => 52 }); // WASI: the library reads no files and asks no system
  const start = () => {
    const instance = new WebAssembly.Instance(module, {
      page: { refuse: (at) => { refused = textAt(at); } },
      wasi_snapshot_preview1: nothing,
    });
    exports = instance.exports;
    exports._initialize();
  };
  const call = (name, ...args) => {
    refused = "";
    try {
      return exports[name](...args);
    } catch (error) {
      start(); // after a trap the instance is not used again
      throw new Error(refused || `the library stopped: ${error.message}`);
    }
  };
  const ask = (name, ...args) => JSON.parse(textAt(call(name, ...args)));
  start();
  const lists = ask("lists");
  return {
    lists,
    encode: (x, format, profile, rounding) => call("encode", x, format, profile, rounding) >>> 0,
    decode: (format, code) => call("decode", format, code),
    cast: (x, format, profile, rounding) => ask("cast", x, format, profile, rounding),
    explain: (format, code) => ask("explain", format, code),
    dot: (model, formatA, formatB, a, b, c) => {
      [a, b].forEach((numbers, side) => {
        const at = call("numbers", side, numbers.length);
        new Float64Array(exports.memory.buffer, at, numbers.length).set(numbers);
      });
      return ask("dot", model, formatA, formatB, c);
    },
  };
}

/// What a reader wrote: {x} of a number, or {code}; throws where it is neither.
function readNumber(text) {
  const trimmed = text.trim().replace("\u2212", "-");
  if (/^0[xb][0-9a-f]+$/i.test(trimmed) && !Number.isNaN(Number(trimmed))) return { code: Number(trimmed) };
  if (/^[+-]?inf(inity)?$/i.test(trimmed)) return { x: trimmed.startsWith("-") ? -Infinity : Infinity };
  if (/^[+-]?nan$/i.test(trimmed)) return { x: NaN };
  const fraction = /^([+-]?\d+)\/(\d+)$/.exec(trimmed);
  const x = fraction ? Number(fraction[1]) / Number(fraction[2]) : Number(trimmed);
  if (trimmed === "" || Number.isNaN(x)) {
    throw new Error(`"${text}" is no number: write 0.3, -1e-3, 5/16, inf, nan, or a code such as 0x2A`);
  }
  return { x };
}

/// The numbers of one side of a dot product; codes are those of its format.
function readNumbers(library, text, format, name) {
  const words = text.split(/[\s,;]+/).filter((word) => word !== "");
  if (words.length === 0) throw new Error(`${name} has no numbers`);
  if (words.length > 256) throw new Error(`${name} has ${words.length} numbers; the page takes 256 at most`);
  const bits = library.lists.formats[format].bits;
  return words.map((word) => {
    const given = readNumber(word);
    if (given.code === undefined) return given.x;
    if (given.code >= 2 ** bits) throw new Error(`${word} in ${name} is no code of ${bits} bits`);
    return library.decode(format, given.code);
  });
}

function showPage(library, root) {
  const find = (name) => root.querySelector(`[data-part="${name}"]`);
  const make = (tag, attributes = {}, ...children) => {
    const isPicture = ["svg", "line", "text", "circle"].includes(tag);
    const node = isPicture ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const fill = (select, names, chosen) => {
    select.replaceChildren(...names.map(([value, words]) => make("option", { value }, words)));
    select.value = chosen;
  };
  const indexOf = (list, name) => list.findIndex((one) => (one.name ?? one) === name);
  const lists = library.lists;
  const say = (place, error) => place.replaceChildren(make("p", { class: "try-error", role: "alert" }, error.message));

  // One cast, or one code

  const numberText = (value) => (typeof value === "number" ? String(value) : value);
  const fractionOf = (text, value) => (text && text !== numberText(value) && text.length < 16 ? ` = ${text}` : "");
  const row = (name, ...value) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, ...value));
  const bitsOf = (code) => {
    const parts = code.bits.split(" ");
    const kinds = ["fraction", "exponent", "sign"];
    const hasFraction = !["e8m0"].includes(find("format").selectedOptions[0].text);
    const names = kinds.slice(hasFraction ? 0 : 1, (hasFraction ? 0 : 1) + parts.length).reverse();
    return parts.map((part, i) => make("span", { class: `try-bits try-${names[i]}`, title: names[i] }, part));
  };
  const picture = (marks, x) => {
    const known = marks.map((mark) => mark.at).concat(Number.isFinite(x) ? [x] : []);
    const low = Math.min(...known);
    const high = Math.max(...known);
    if (!(high > low)) return "";
    const place = (value) => 50 + 300 * ((value - low) / (high - low));
    const svg = make("svg", { viewBox: "0 0 400 74", role: "img", "aria-label": "where the number lies between codes" });
    svg.append(make("line", { x1: 10, x2: 390, y1: 37, y2: 37, class: "try-axis" }));
    for (const mark of marks) {
      svg.append(make("line", { x1: place(mark.at), x2: place(mark.at), y1: mark.tie ? 33 : 27, y2: mark.tie ? 41 : 47, class: "try-axis" }));
      svg.append(make("text", { x: place(mark.at), y: 62, class: mark.chosen ? "try-chosen" : "" }, mark.label));
    }
    if (Number.isFinite(x)) {
      svg.append(make("circle", { cx: place(x), cy: 37, r: 4, class: "try-x" }));
      svg.append(make("text", { x: Math.min(Math.max(place(x), 60), 340), y: 18, class: "try-x" }, `x = ${numberText(x)}`));
    }
    return svg;
  };
  const marksOf = (answer) => {
    const { result, range, neighbours } = answer;
    const mark = (code) => ({ at: code.value, label: code.code, chosen: code.code === result.code });
    if (neighbours && neighbours.tie !== null) {
      return [mark(neighbours.below), { at: neighbours.tie, label: "tie", tie: true }, mark(neighbours.above)];
    }
    if (!range) return [];
    return [range.below, result, range.above].filter((code) => code !== null).map(mark);
  };
  const besideRows = (range) => {
    const one = (name, code) => (code ? [row(name, `${code.code} = ${numberText(code.value)}`)] : []);
    const low = numberText(range.low) + (range.low_included ? " (included)" : "");
    const high = numberText(range.high) + (range.high_included ? " (included)" : "");
    return [...one("code below", range.below), ...one("code above", range.above),
      row("nearest rounding", `all numbers from ${low} to ${high} become this code where nothing saturates; a tie becomes the even one`)];
  };
  const castRows = (answer, x) => {
    const { result, neighbours } = answer;
    const rows = [row("x", numberText(answer.x) + fractionOf(answer.fraction, answer.x))];
    if (neighbours.tie !== null) {
      rows.push(row("lies between", `${neighbours.below.code} = ${numberText(neighbours.below.value)} and ${neighbours.above.code} = ${numberText(neighbours.above.value)}`));
      rows.push(row("tie", `${numberText(neighbours.tie)}${neighbours.is_tie ? ": x is the tie itself" : x < neighbours.tie ? ": x is below it" : ": x is above it"}`));
    } else if (Number.isFinite(x) && x === result.value) {
      rows.push(row("lies", "on a code: nothing is rounded"));
    } else if (Number.isFinite(x)) {
      rows.push(row("lies", neighbours.above === null ? "above the largest value" : "below the smallest value"));
    }
    if (Number.isFinite(x) && typeof result.value === "number") rows.push(row("error", numberText(Number((result.value - x).toPrecision(6)))));
    return rows;
  };
  const showCast = () => {
    const place = find("cast-answer");
    try {
      const format = Number(find("format").value);
      const given = readNumber(find("x").value);
      const bits = lists.formats[format].bits;
      if (given.code !== undefined && given.code >= 2 ** bits) {
        throw new Error(`${find("x").value.trim()} is no code of ${lists.formats[format].name}, which has ${bits} bits`);
      }
      const answer = given.code === undefined
        ? library.cast(given.x, format, Number(find("profile").value), Number(find("rounding").value))
        : library.explain(format, given.code);
      const { result } = answer;
      const value = [numberText(result.value), fractionOf(result.fraction, result.value), result.product ? ` = ${result.product}` : ""].join("");
      place.replaceChildren(
        make("p", { class: "try-big" }, `${result.code} = `, ...bitsOf(result)),
        picture(marksOf(answer), given.x),
        make("table", {}, make("tbody", {}, ...(given.code === undefined ? castRows(answer, given.x) : []),
          row("code", `${result.code}, ${result.kind}`), row("its value", value), ...(answer.range ? besideRows(answer.range) : []))));
    } catch (error) {
      say(place, error);
    }
    find("format-words").textContent = lists.formats[Number(find("format").value)].words;
    find("profile-words").textContent = lists.profiles[Number(find("profile").value)].source;
  };

  // One dot product, step by step

  const stages = ["the products", "the largest exponent", "what is kept", "the sum"];
  let trace = null;
  let shown = 0;
  const stepsOf = () => trace.instructions.flatMap((one) => one.steps.map((step, i) => ({ one, step, i })));
  const factorText = (factor) => (factor ? `${factor.code} = ${numberText(factor.value)}` : "");
  const termsTable = (step, stage) => {
    const columns = [["k", (term) => term.k], ["a", (term) => factorText(term.a)], ["b", (term) => factorText(term.b)],
      ["product", (term) => numberText(term.value)]];
    if (stage >= 1) columns.push(["exponent", (term) => (term.exponent === null ? "" : String(term.exponent))]);
    if (stage >= 2) columns.push(["kept | cut off", (term) => (term.picture ? make("code", {}, term.picture) : numberText(term.kept))]);
    return make("div", { class: "try-wide" }, make("table", {}, make("thead", {}, make("tr", {}, ...columns.map(([name]) => make("th", {}, name)))),
      make("tbody", {}, ...step.terms.map((term) => make("tr", {}, ...columns.map(([, cell]) => make("td", {}, cell(term))))))));
  };
  const wordText = (word) => `${word.word} = ${numberText(word.value)}, bits ${word.bits}`;
  const stepView = ({ one, step, i }, stage) => {
    const lines = [];
    if (stage >= 1) lines.push(step.why);
    if (stage >= 3 && step.sum !== null) lines.push(`sum of what is kept: ${step.sum} \u00d7 2^${step.unit} = ${numberText(step.sum_value)}; cut off in all: ${numberText(step.cut)}`);
    if (stage >= 3) lines.push(`accumulator: ${wordText(step.after)}`);
    const title = `k ${one.k} to ${one.k + one.products - 1}${one.steps.length > 1 ? `, step ${i + 1} of ${one.steps.length}` : ""}`;
    return make("section", {}, make("h4", {}, title), termsTable(step, stage), ...lines.map((line) => make("p", {}, line)));
  };
  const showDot = () => {
    const place = find("dot-answer");
    if (trace === null) return;
    const steps = stepsOf();
    const last = steps.length * stages.length - 1;
    shown = Math.min(Math.max(shown, 0), last);
    const views = steps.slice(0, Math.floor(shown / stages.length) + 1).map((step, i) => stepView(step, shown - i * stages.length));
    if (shown === last) views.push(make("p", { class: "try-big" }, `Result: ${trace.result.word} = ${numberText(trace.result.value)}`));
    place.replaceChildren(...views);
    find("back").disabled = shown === 0;
    find("next").disabled = find("all").disabled = shown === last;
    find("stage").textContent = shown === last ? "This is all of it." : `Next: ${stages[(shown + 1) % stages.length]}.`;
  };
  const chosenModel = () => lists.models[Number(find("model").value)];
  const askDot = () => {
    trace = null;
    find("model-words").textContent = `${chosenModel().words}. Evidence: ${chosenModel().evidence}`;
    try {
      const [a, b] = ["a", "b"].map((side) => {
        const format = Number(find(`format-${side}`).value);
        return { format, numbers: readNumbers(library, find(side).value, format, side) };
      });
      if (a.numbers.length !== b.numbers.length) throw new Error(`a has ${a.numbers.length} numbers and b ${b.numbers.length}: both must have as many`);
      const c = readNumber(find("c").value);
      if (c.x === undefined) throw new Error("c must be a number");
      trace = library.dot(Number(find("model").value), a.format, b.format, a.numbers, b.numbers, c.x);
      shown = 0;
      showDot();
    } catch (error) {
      say(find("dot-answer"), error);
      for (const name of ["back", "next", "all"]) find(name).disabled = true;
      find("stage").textContent = "";
    }
  };
  const chooseModel = () => {
    const names = chosenModel().operands.map((name) => [indexOf(lists.formats, name), name]).filter(([at]) => at >= 0);
    for (const side of ["a", "b"]) fill(find(`format-${side}`), names, names[0][0]);
    askDot();
  };

  fill(find("format"), lists.formats.map((one, i) => [i, one.name]), indexOf(lists.formats, "e4m3"));
  fill(find("profile"), lists.profiles.map((one, i) => [i, one.name]), indexOf(lists.profiles, "cuda_satfinite"));
  fill(find("rounding"), [[-1, "the profile's own"], ...lists.roundings.map((name, i) => [i, name]).filter(([, name]) => name !== "stochastic")], -1);
  fill(find("model"), lists.models.map((one, i) => [i, one.name]).filter(([i]) => lists.models[i].offered), indexOf(lists.models, "hopper_wgmma_fp8"));
  for (const name of ["x", "format", "profile", "rounding"]) find(name).addEventListener("input", showCast);
  for (const name of ["a", "b", "c", "format-a", "format-b"]) find(name).addEventListener("input", askDot);
  find("model").addEventListener("input", chooseModel);
  find("next").addEventListener("click", () => { shown += 1; showDot(); });
  find("back").addEventListener("click", () => { shown -= 1; showDot(); });
  find("all").addEventListener("click", () => { shown = Infinity; showDot(); });
  showCast();
  chooseModel();
  root.hidden = false;
}

if (typeof module !== "undefined") module.exports = { startLibrary, readNumber, readNumbers };
