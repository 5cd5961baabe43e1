// What the page makes of lines of output, as lines for output.golden.
import { pieces, plain } from "./ansi.js";
import { append } from "./lines.js";

const esc = "\x1b[";
const ascii = (v) => JSON.stringify(v).replace(/[^ -~]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
for (const line of [
  "no colours", "", `${esc}32mgreen${esc}0m and not`, `${esc}1;31mbold red${esc}22mred${esc}39mplain`, `${esc}mnothing`,
  `${esc}38;5;196mof the table${esc}38;5;10m named${esc}38;5;244m grey`, `${esc}48;2;1;2;3;4mon numbers, underlined`, `${esc}38:2::9:8:7mwith colons${esc}4:3mcurly${esc}4:0mnone`,
  `${esc}38;5;999mout of range${esc}38;2;1mtorn${esc}94;107mbright`, `${esc}7minverse${esc}27m${esc}9mstruck${esc}29m${esc}3mitalic${esc}2mfaint`,
  `<script>alert(1)</script>${esc}31m<b onclick=x>"&amp;`, `${esc}2J${esc}>4;2mno colours\x1b]0;title\x07\x9b31m\u202eturned`, `${esc}31`, `${esc}0;0;1;1mstays`,
  `${esc}${"1;".repeat(40)}mtoo long`,
]) {
  console.log(ascii(line));
  console.log(`  ${ascii(plain(line))}`);
  for (const p of pieces(line)) console.log(`  ${ascii(p)}`);
}

let all = [];
const line = (slot, text, open, stream = "stderr") => ({ place: { node: "a", slot }, stream, text, open });
const show = (...more) => {
  all = append(all, more, 5);
  console.log(all.map((l) => `${l.place.slot}:${l.text}${l.open ? "..." : ""}`).join(" | "));
};
show(line(0, "begins"), line(0, "10%", true));
show(line(1, "10%", true), line(0, "20%", true));
show(line(0, "printed", false, "stdout"));
show(line(1, "20%", true), line(1, "30%", true), line(0, "100%"));
show(line(0, "next"), line(1, "40%", true));
show(line(0, "more"), line(0, "and more"));
