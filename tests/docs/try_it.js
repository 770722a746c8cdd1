// SPDX-License-Identifier: Apache-2.0
// node try_it.js PAGE.js FILE.wasm < request.json: what the page's library answers, as JSON. Numbers are base64 of float64, for JSON has
// neither infinities nor NaN.
"use strict";
const fs = require("fs");
const { startLibrary, readNumber, readNumbers } = require(process.argv[2]);

const numbersOf = (text) => new Float64Array(new Uint8Array(Buffer.from(text, "base64")).buffer);
const base64 = (array) => Buffer.from(array.buffer).toString("base64");

startLibrary(fs.readFileSync(process.argv[3])).then((library) => {
  const request = JSON.parse(fs.readFileSync(0));
  const { formats, profiles, roundings, models } = library.lists;
  const at = (list, name) => list.findIndex((one) => (one.name ?? one) === name);
  const attempt = (f) => { try { return f(); } catch (error) { return { error: error.message }; } };
  const answers = {
    lists: library.lists,
    decoded: request.decode.map((name) => base64(Float64Array.from(
      { length: 2 ** formats[at(formats, name)].bits }, (_, code) => library.decode(at(formats, name), code)))),
    encoded: request.encode.map(({ format, profile, rounding, numbers }) => base64(Uint32Array.from(numbersOf(numbers),
      (x) => library.encode(x, at(formats, format), at(profiles, profile), rounding === null ? -1 : at(roundings, rounding))))),
    casts: request.cast.map(({ x, format }) => library.cast(x, at(formats, format), at(profiles, "cuda_satfinite"), -1)),
    dots: request.dot.map(({ model, format, a, b, c }) => attempt(() => library.dot(at(models, model), at(formats, format), at(formats, format),
      numbersOf(a), numbersOf(b), c))),
    read: request.read.map((text) => attempt(() => readNumber(text))),
    sides: request.sides.map(({ text, format }) => attempt(() => readNumbers(library, text, at(formats, format), "a"))),
  };
  process.stdout.write(JSON.stringify(answers));
});
