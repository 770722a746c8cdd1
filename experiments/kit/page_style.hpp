// SPDX-License-Identifier: Apache-2.0
// The style and the script of a page. Colours are those of Okabe and Ito (Color Universal Design, 2008), which readers
// with a weak sense of red or green tell apart; lighter ones of them stand on a dark ground.
#pragma once

#include <string_view>

namespace fp8lab::experiments {

/// What a page and a fragment in a notebook share; all of it is below the class fp8lab.
inline constexpr std::string_view page_style =
    R"css(.fp8lab{--line:#8886;--soft:#8882;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#666;--band:#cfe3f1;
font:15px/1.5 system-ui,sans-serif}
@media screen and (prefers-color-scheme:dark){.fp8lab{--c0:#56b4e9;--c1:#e69f00;--c2:#00c08b;--c3:#e59fc5;--c4:#f0e442;--c5:#ff8c42;--c6:#bbb;--band:#24506b}}
.fp8lab .scroll{overflow-x:auto}
.fp8lab table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
.fp8lab th,.fp8lab td{padding:3px 10px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
.fp8lab tbody th{font-weight:normal}
.fp8lab .n{text-align:right}
.fp8lab th,.fp8lab td{white-space:nowrap}.fp8lab .w{white-space:normal;min-width:16em}.fp8lab .a{white-space:pre;font-family:monospace}
.fp8lab .t:not(:has(input:checked)) .scroll:not(.every) .d{display:none}
.fp8lab .all{font-size:13px;opacity:.8}
.fp8lab .note{font-size:13px;opacity:.8;margin:2px 0 8px}
.fp8lab mark{background:var(--c4);color:#000;padding:0 2px}
.fp8lab .badge{font-size:13px;font-weight:600;border:2px solid var(--c2);border-radius:4px;padding:1px 7px;vertical-align:middle;white-space:nowrap}
.fp8lab .badge.no{border-color:var(--c1)}
.fp8lab .panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));gap:12px 20px}
.fp8lab figure{margin:0}
.fp8lab figure svg,.fp8lab .plot{width:100%;height:auto;display:block}
.fp8lab .plot{max-width:760px}
.fp8lab figcaption{font-size:14px}
.fp8lab svg text{font:11px system-ui,sans-serif;fill:currentColor}
.fp8lab svg text.strong{font-weight:700}
.fp8lab .axis{stroke:currentColor;fill:none;opacity:.7}
.fp8lab .grid{stroke:var(--line);fill:none}
.fp8lab .band{fill:var(--band)}
.fp8lab .open{fill:none;stroke:var(--c1);stroke-width:1.5}
.fp8lab .legend{list-style:none;padding:0;margin:4px 0;display:flex;flex-wrap:wrap;gap:2px 18px;font-size:14px}
.fp8lab .f0{fill:var(--c0)}.fp8lab .f1{fill:var(--c1)}.fp8lab .f2{fill:var(--c2)}.fp8lab .f3{fill:var(--c3)}.fp8lab .f4{fill:var(--c4)}.fp8lab .f5{fill:var(--c5)}.fp8lab .f6{fill:var(--c6)}
.fp8lab .s0,.fp8lab .s1,.fp8lab .s2,.fp8lab .s3,.fp8lab .s4,.fp8lab .s5,.fp8lab .s6{fill:none;stroke-width:2;stroke:var(--c6)}
.fp8lab .s0{stroke:var(--c0)}.fp8lab .s1{stroke:var(--c1)}.fp8lab .s2{stroke:var(--c2)}.fp8lab .s3{stroke:var(--c3)}.fp8lab .s4{stroke:var(--c4)}.fp8lab .s5{stroke:var(--c5)}
.fp8lab .m{border-bottom:3px solid var(--c6)}
.fp8lab .m.c0{border-color:var(--c0)}.fp8lab .m.c1{border-color:var(--c1)}.fp8lab .m.c2{border-color:var(--c2)}.fp8lab .m.c3{border-color:var(--c3)}.fp8lab .m.c4{border-color:var(--c4)}.fp8lab .m.c5{border-color:var(--c5)}
.fp8lab dt{font-weight:600;margin-top:8px}.fp8lab dd{margin:0 0 0 18px;overflow-wrap:anywhere}
)css";

/// What a page alone has: its ground, its measure, a shadow where a table goes on beyond the screen, and how it is
/// printed.
inline constexpr std::string_view page_colors = R"css(:root{color-scheme:light dark}
body{--ground:#fff;--shade:#0004;margin:0;background:var(--ground);color:#1a1a1a}
@media screen and (prefers-color-scheme:dark){body{--ground:#16181c;--shade:#fff5;color:#e8e8e8}}
main{max-width:1248px;margin:0 auto;padding:16px}
h1{font-size:24px;margin:8px 0}h2{font-size:19px;margin:26px 0 6px}h3{font-size:16px;margin:20px 0 6px}
main p{max-width:76ch;overflow-wrap:anywhere}
details{margin:10px 0}summary{cursor:pointer}
article+article{border-top:2px solid var(--line);margin-top:32px}
a{color:inherit}
@media screen{.scroll{background:linear-gradient(90deg,var(--ground) 60%,transparent) left/40px 100% no-repeat local,linear-gradient(270deg,var(--ground) 60%,transparent) right/40px 100% no-repeat local,linear-gradient(90deg,var(--shade),transparent) left/10px 100% no-repeat scroll,linear-gradient(270deg,var(--shade),transparent) right/10px 100% no-repeat scroll}}
.sortable thead th{cursor:pointer;white-space:nowrap}
.sortable thead th:focus-visible{outline:2px solid var(--c0)}
.sortable th[aria-sort=ascending]::after{content:" \2191"}.sortable th[aria-sort=descending]::after{content:" \2193"}
@media (max-width:520px){main{padding:10px}.fp8lab svg text{font-size:13px}.fp8lab .plot text{font-size:17px}}
@media print{main{max-width:none;padding:0}figure,svg,tr{break-inside:avoid}.fp8lab .scroll{overflow:visible}.fp8lab th,.fp8lab td{white-space:normal}.fp8lab .a{white-space:pre}.fp8lab tbody th{overflow-wrap:anywhere;min-width:9em}.fp8lab .all{display:none}body{font-size:11px}}
)css";

/// Sorts a table where a heading is chosen, and opens all before printing.
inline constexpr std::string_view page_script =
    R"js(document.querySelectorAll("table.sortable").forEach(function(table){
  var heads=table.tHead.rows[0].cells;
  function key(row,i){var cell=row.cells[i];return cell.title||cell.textContent.trim()}
  function sort(i){
    var down=heads[i].getAttribute("aria-sort")==="ascending";
    var rows=Array.prototype.slice.call(table.tBodies[0].rows);
    var number=heads[i].classList.contains("n");
    rows.sort(function(a,b){
      var x=key(a,i),y=key(b,i),order;
      if(number){
        x=parseFloat(x.replace("inf","Infinity"));y=parseFloat(y.replace("inf","Infinity"));
        if(isNaN(x)||isNaN(y))return isNaN(x)-isNaN(y);
        order=x<y?-1:x>y?1:0;
      }else order=x.localeCompare(y,"en",{numeric:true});
      return down?-order:order;
    });
    rows.forEach(function(row){table.tBodies[0].appendChild(row)});
    for(var j=0;j<heads.length;j++)heads[j].removeAttribute("aria-sort");
    heads[i].setAttribute("aria-sort",down?"descending":"ascending");
  }
  for(var i=0;i<heads.length;i++)(function(i){
    heads[i].tabIndex=0;
    heads[i].addEventListener("click",function(){sort(i)});
    heads[i].addEventListener("keydown",function(event){if(event.key==="Enter"||event.key===" "){event.preventDefault();sort(i)}});
  })(i);
});
addEventListener("beforeprint",function(){document.querySelectorAll("details").forEach(function(one){one.open=true})});
)js";

}  // namespace fp8lab::experiments
