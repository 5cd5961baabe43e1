// A worker's output as terminals show it: pieces of text with colours and styles. None of it becomes
// HTML.
const sequence = /\x1b\[([0-9;:]{0,64})m/g;
const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const styles = { 1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse", 9: "struck" };
const ends = { 22: ["bold", "faint"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["struck"] };
const steps = [0, 95, 135, 175, 215, 255];

// plain is a text without its colours.
export const plain = (text) => text.replace(sequence, "");

// visible writes out control characters, and those that change the direction of writing.
const visible = (text) => text.replace(/[\0-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (c) => {
  const code = c.charCodeAt(0);
  return code < 0x80 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
});

// ofTable is a colour of the table of 256: a name, or numbers of red, green and blue.
function ofTable(n) {
  if (n < 16) return (n < 8 ? "" : "bright-") + names[n % 8];
  if (n > 231) return Array(3).fill(8 + 10 * (n - 232));
  return [Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map((i) => steps[i]);
}

// extended reads what follows a 38, 48 or 58: 5;N or 2;R;G;B. It returns the colour and how many
// numbers it has read.
function extended(numbers) {
  const inRange = (n) => Number.isInteger(n) && n >= 0 && n <= 255;
  if (numbers[0] === 5) return [inRange(numbers[1]) ? ofTable(numbers[1]) : null, 2];
  if (numbers[0] === 2) return [numbers.slice(1, 4).every(inRange) && numbers.length > 3 ? numbers.slice(1, 4) : null, 4];
  return [null, numbers.length];
}

// apply changes how text is shown by the parameters of a sequence.
function apply(how, parameters) {
  const all = parameters.split(";");
  for (let i = 0; i < all.length; i++) {
    const [n, ...sub] = all[i].split(":").map((s) => (s === "" ? 0 : Number(s)));
    if (n === 38 || n === 48 || n === 58) {
      // With colons a colour of three numbers may have a first one that says of which space it is.
      const own = sub[0] === 2 && sub.length > 4 ? [2, ...sub.slice(2)] : sub;
      const [colour, read] = extended(sub.length ? own : all.slice(i + 1).map(Number));
      if (!sub.length) i += read;
      if (colour && n !== 58) how[n === 38 ? "fg" : "bg"] = colour;
    } else if (n === 0) for (const k of Object.keys(how)) delete how[k];
    else if (n === 4 && sub.length && sub[0] === 0) delete how.underline;
    else if (styles[n]) how[styles[n]] = true;
    else if (ends[n]) for (const k of ends[n]) delete how[k];
    else if (n === 39) delete how.fg;
    else if (n === 49) delete how.bg;
    else if (n >= 30 && n <= 37) how.fg = names[n - 30];
    else if (n >= 40 && n <= 47) how.bg = names[n - 40];
    else if (n >= 90 && n <= 97) how.fg = "bright-" + names[n - 90];
    else if (n >= 100 && n <= 107) how.bg = "bright-" + names[n - 100];
  }
}

// piece is a text, the classes of its named colours and styles, and the style of the other colours.
function piece(text, how) {
  const classes = [], style = {};
  for (const [key, value] of Object.entries(how)) {
    if (value === true) classes.push(`ansi-${key}`);
    else if (typeof value === "string") classes.push(`ansi-${value}-${key}`);
    else style[key === "fg" ? "color" : "background"] = `rgb(${value.join(", ")})`;
  }
  return { text: visible(text), classes: classes.join(" "), style };
}

// pieces divides a line by its colours, which end with it.
export function pieces(line) {
  const all = [], how = {};
  let from = 0;
  for (const m of line.matchAll(sequence)) {
    if (m.index > from) all.push(piece(line.slice(from, m.index), how));
    apply(how, m[1]);
    from = m.index + m[0].length;
  }
  if (from < line.length) all.push(piece(line.slice(from), how));
  return all;
}
