"use strict";
// One round of speculation, drawn: show(round) tells its frames, go(n) shows one of them. step.html
// shows a recorded round (trace() in step.py makes it), the live page one that it has just played.

const ui = new Proxy({}, { get: (_, id) => document.getElementById(id) });
const sum = list => list.reduce((a, b) => a + b, 0);
const last = list => list[list.length - 1];
const range = n => [...Array(n).keys()];
const highest = (table, n) => range(table.length).sort((a, b) => table[b] - table[a]).slice(0, n);
const whole = table => { const all = sum(table) || 1; return table.map(x => x / all); };
const without = (table, gone) => whole(table.map((p, token) => token === gone ? 0 : p));
const residual = (p, q) => {
  const missing = p.map((x, token) => Math.max(x - q[token], 0));
  return sum(missing) > 0 ? whole(missing) : p;
};
const listed = list => list.length < 2 ? `${list}` : `${list.slice(0, -1).join(", ")} and ${last(list)}`;
const several = (n, thing) => `${n} ${thing}${n === 1 ? "" : thing.endsWith("s") ? "es" : "s"}`;
const upper = text => text[0].toUpperCase() + text.slice(1);
const visible = text => text.replace(/\n/g, "\\n").replace(/\t/g, "\\t").replace(/\s/g, "\u2423") || "\u2205";

function digits(x) {  // .347 -> .35; more digits below .1 and near 1
  for (const places of [2, 3, 4, 5]) {
    const text = x.toFixed(places);
    if (+text > 0 && +text < 1 && (x >= .1 || places > 2)) return text.replace(/^0/, "");
  }
  return x > .5 ? "1" : x ? "<.00001" : "0";
}
const short = x => !x ? "0" : x < .01 ? "<.01" : x < .995 ? x.toFixed(2).slice(1) : "1";

// make("p.big", { title, onclick }, child, ..): text goes in as text alone, so no token can become markup.
function make(name, ...parts) {
  const [tag, kind] = name.split(/\.(.*)/), svg = /^(g|rect|path|text|tspan)$/.test(tag);
  const node = document.createElementNS(`http://www.w3.org/${svg ? "2000/svg" : "1999/xhtml"}`, tag);
  if (kind) node.setAttribute("class", kind);
  for (const part of parts)
    if (typeof part !== "object" || part.nodeType) node.append(part);
    else for (const [key, value] of Object.entries(part))
      if (typeof value === "function") node[key] = value;
      else node.setAttribute(key, value);
  return node;
}

// ---- the round

let trace, depth, chain, now = 0, timer = null;
const root = document.documentElement, asked = new URLSearchParams(location.hash.slice(1));
const words = { target: "the target", drafter: "the drafter", token: "token", p: "target p", q: "drafter q" };  // the live page has others
const children = (parents, row) => parents.flatMap((parent, child) => parent === row ? [child] : []);
const lineage = parents => parents.reduce((rows, parent, row) => [...rows, [...rows[parent] || [], row]], []);  // from the root on
const below = row => children(trace.parents, row);
const text = row => trace.letters[trace.tokens[row]];
const quoted = row => `'${text(row)}'`;
const expected = i => (trace.confidence[i] * trace.groups.filter(group => group === i + 1).length).toFixed(1);  // n times the mean
const guess = row => trace.guesses ? trace.guesses[row] : trace.q[trace.parents[row]][trace.tokens[row]];

function prepare(given) {
  trace = { names: [], say_draft: "", say_verify: "", ...given,
            letters: [...given.letters].map(visible), verified: given.p.length };
  trace.groups ||= trace.tokens.map(() => 0);
  trace.paths = trace.sees = lineage(trace.parents);
  depth = trace.sees.map(rows => rows.length - 1);
  chain = trace.parents.every((parent, row) => parent === row - 1);
  trace.frames = tell();
}

// q after these nodes: the drafter's table, or what their own children were given, the rest not known.
function guessed(rows, group = 0) {
  if (trace.q) return trace.q[rows[0]] || [];
  const table = [];
  for (const row of rows.flatMap(below))
    if (!group || trace.groups[row] === group)
      table[trace.tokens[row]] = Math.max(table[trace.tokens[row]] || 0, guess(row));
  return table;
}

// A chart is {title, rows}; of tables [label, class, a number a token], the highest tokens.
function bars(title, tables, marked) {
  const most = trace.letters.map((_, token) => Math.max(...tables.map(([, , table]) => table[token] || 0)));
  const shown = new Set([...highest(most, 7 - marked.length), ...marked]);
  return { title, rows: highest(most).filter(token => shown.has(token) && most[token]).map(token => ({ text: trace.letters[token], marked: marked.includes(token),
    values: tables.map(([label, kind, table]) => [label, kind, table[token]]) })) };
}
const both = (p, q, name = "p") => [[name, "own", p], ...q ? [["q", "draft", q]] : []];
const lettered = table => whole(table).map((p, token) => [trace.letters[token], p]);

function tell() {
  const { kept, verified, letters } = trace, frames = [], N = trace.tokens.length, rows = range(N).slice(1);
  const draws = trace.draws.slice(trace.drafted === "drawn" ? N - 1 : 0);  // the rule's own
  const { target, drafter, token: tokens } = words, deepest = Math.max(...depth);
  let state = { shown: 1, accepted: [], rejected: [], gone: [], next: null, scores: null, kept: null,
                judged: {} };  // row: p and q that it was judged by, and its coin
  const frame = (verb, text, focus, changes = {}, charts = [], unit = null) => {
    state = { ...state, ...changes };
    frames.push({ verb, text, focus, charts, unit, ...state });
  };
  // Whoever is behind a lost row is lost.
  const out = lost => rows.filter(row => [...state.rejected, ...lost].some(one => trace.sees[row].includes(one)));
  const own = (draw, row, why, table, q, name) => frame("accept", why + (Math.max(...table) === 1 ? ": "
    : `: u = ${digits(draw.u)} falls on `) + `'${letters[draw.value]}'. It is the next root.`, [row],
    { next: { text: letters[draw.value], parent: row } },
    [bars(`after ${quoted(row)}`, both(whole(table), q, name), [draw.value])],
    { ...draw, kind: "own", parts: lettered(table) });
  const bonus = `Every guess on this path is accepted. The same forward also says what comes after it`;

  const best = trace.drafted === "best", at = row => best ? depth[row] : trace.parents[row];
  const turn = row => best ? Math.ceil(row / 4) : chain || trace.drafted === "heads" ? trace.groups[row] : depth[row];
  const turns = [...new Set(rows.map(turn))].map(one => rows.filter(row => turn(row) === one));
  const masses = trace.c || rows.reduce((mass, row) => [...mass, mass[trace.parents[row]] * guess(row)], [1]);
  turns.forEach((some, i) => {
    const head = trace.groups[some[0]], found = several(some.length, "node");
    const charts = [...new Set(some.map(at))].map(place => {
      const same = some.filter(row => at(row) === place);
      return bars(best ? `position ${place}` : `after ${quoted(place)}`,
        [["q", `draft head${head}`, guessed([trace.parents[same[0]]], head)]], same.map(row => trace.tokens[row]));
    });
    frame("draft", (i ? "" : `${upper(target)} chose ${quoted(0)} and has not read it yet. `)
      + (head === 3 ? `Both heads guessed ${found}: one row for each.`
      : head ? `${upper(trace.names[head - 1])} guesses ${found}.`
      : best ? `Rows ${some[0]} to ${last(some)} are the ${i ? "next " : ""}best prefixes.`
      : `${upper(drafter)} guesses ${chain ? some.map(quoted).join(", then ")
        : some.length > 6 ? several(some.length, tokens) : listed(some.map(quoted))}.`) + ` ${trace.say_draft}`,
      some, { shown: last(some) + 1, scores: trace.scores_are && trace.rule !== "layers" ? masses : null }, charts);
  });
  if (trace.names[2]) frame("merge", "One tree of both: what both heads guessed has one row, not two, and the best guesses of either fill the rest.",
    range(N));
  if (trace.confidence) {
    frame("route", `Each head expects so many accepted drafts, the sum of its c: ${listed(trace.names.map((name, i) =>
      `${expected(i)} for ${name}`))}. The tree with the smaller sum is never verified.`, range(verified),
      { gone: rows.filter(row => row >= verified) });
  }
  frame("verify", `One forward of ${target} reads all ${verified} rows. A row sees the text, its `
    + `ancestors and itself, so it answers: what comes after the path to me? ${trace.say_verify}`,
    range(verified), { shown: N, scores: null });
  ({ coins, walk, layers })[trace.rule]();

  function coins() {  // a coin for each child in turn, then a draw of the target's own
    let here, next = 0;
    while (next !== here) {
      here = next;
      const kids = below(here);
      let left = trace.p[here], q = trace.q[here] || [];
      for (const child of kids) {
        const draw = draws.shift(), token = trace.tokens[child], u = 1 - draw.u;  // its head comes last
        const [p, sure] = [left[token], Math.max(...left) === 1];
        const charts = [bars(`after ${quoted(here)}`, both(left, q), [token])];
        const verdict = draw.value ? "accepted" : "rejected";
        const coin = { u, value: 1 - draw.value, kind: verdict,
                       parts: [["keep", draw.coin], ["reject", 1 - draw.coin]] };
        state.judged = { ...state.judged, [child]: { p, q: q[token], coin: sure ? []
          : [short(u), `${draw.value ? "<" : ">"} ${short(draw.coin)}`] } };
        frame("accept", sure ? `Is ${quoted(child)} what ${target} likes best? ${draw.value ? "Yes" : "No"}: ${verdict}.`
          : `${upper(target)} gives ${quoted(child)} p = ${digits(p)}, ${drafter} gave it q = ${digits(q[token])}. `
          + (draw.coin === 1 ? `At least as much: ${verdict}.` : `Less: keep it with probability p / q = `
          + `${digits(draw.coin)} only. The coin says ${digits(u)}: ${verdict}.`), [child],
          draw.value ? { accepted: kept.slice(0, kept.indexOf(child) + 1) } : { rejected: out([child]) },
          charts, sure ? null : coin);
        if (draw.value) { next = child; break; }
        const other = child !== last(kids);
        left = residual(left, q);
        q = without(q, token);
        if (!sure) frame("accept", `What ${drafter} proposed too rarely is still owed: p - q, where p is larger. `
          + (other ? "The next guess is judged by that, and the rejected one leaves q." : `The next ${tokens} is drawn from that.`),
          [here], {}, [bars(`after ${quoted(here)}`, both(left, other && q, "residual"), [])]);
      }
      if (next === here) own(draws.shift(), here, !kids.length ? bonus
        : `No guess is left. ${upper(target)} writes its own ${tokens}`, left, null, kids.length ? "residual" : "p");
    }
  }

  function walk() {  // the target draws its own token; who guessed it moves on
    let living = [0], path = [];
    for (const draw of draws) {
      const kids = living.flatMap(below).filter(row => row < verified), table = trace.p[living[0]];
      const same = kids.filter(row => trace.tokens[row] === draw.value), quote = quoted(living[0]);
      path = [...path, ...living];
      state.rejected = out(kids.filter(row => !same.includes(row)));
      state.accepted = [...path, ...same];
      if (!same.length) {
        state.accepted = kept;
        return own(draw, last(kept), kids.length ? `After ${quote} nobody guessed what ${target} writes`
          : bonus, table, guessed(living));
      }
      const unit = { ...draw, kind: "accepted", parts: lettered(table) };
      frame("accept", `After ${quote} ${target} ` + (Math.max(...table) === 1 ? "likes best"
        : `draws its own ${tokens}: u = ${digits(draw.u)} falls on`) + ` '${letters[draw.value]}'. `
        + (same.length > 1 ? `Rows ${listed(same)} have it, the same prefix in two trees: one draw serves both.`
        : `Row ${same[0]} has it: go there.`), living, {},
        [bars(`after ${quote}`, both(table, guessed(living)), [draw.value])], unit);
      living = same;
    }
  }

  function layers() {  // scores down the layers; then one draw is held against them, the deepest first
    const tag = row => `${row} ${text(row)}`, [end, token] = draws;
    const layer = d => range(N).filter(row => depth[row] === d);
    const beyond = d => range(N).filter(row => depth[row] > d);
    for (let d = 1; d <= deepest; d++)
      frame("down", `Layer ${d}: each score is the chance that the accepted path goes through the node. Together `
        + `${digits(sum(layer(d).map(row => trace.scores[row])))}.`, layer(d),
        { scores: trace.scores, gone: beyond(d) });
    for (let d = deepest; d >= depth[end.value]; d--) {
      const hit = d === depth[end.value];
      frame("up", `Layer ${d} ends the path with ${digits(sum(layer(d).map(row => trace.ends[row])))} in all. `
        + `One u decides: ${digits(end.u)} ` + (hit ? `falls on row ${end.value}. Its whole path is accepted.`
        : "falls elsewhere, so ask the layer above."), hit ? [end.value] : layer(d),
        { scores: trace.ends.map((p, row) => depth[row] < d ? null : p), ends: true, accepted: hit ? kept : [],
          rejected: hit ? range(N).filter(row => !kept.includes(row)) : beyond(d - 1) },
        [], { ...end, kind: "accepted", parts: trace.ends.map((p, row) => [tag(row), p]) });
    }
    const inner = below(end.value).length;
    own(token, end.value, inner ? `The next ${tokens} comes from what is still owed here` : bonus, trace.owed, null,
      inner ? "owed" : "p");
  }

  const lost = verified - kept.length, wrote = several(trace.emitted.length, tokens);
  frame("commit", `The cache keeps row${kept.length > 1 ? "s" : ""} ${kept.join(", ")}`
    + `${lost ? ` and forgets the other ${lost > 1 ? lost : "one"}` : ""}. This one forward wrote ${wrote}: `
    + `${trace.emitted.map(token => `'${letters[token]}'`).join(" ")}. The last one is the next root.`,
    kept, { kept, accepted: kept, gone: range(N).filter(row => !kept.includes(row)) });
  if (!is("still")) return frames;

  // For a picture without keys: the end of each verb, in a few words.
  const wants = `The large model draws ${listed(trace.emitted.map(token => `'${letters[token]}'`))}, one after the other. What was guessed stays.`;
  const brief = { draft: trace.names[0] ? "Two heads guess." : "A small model guesses.",
    verify: `One pass of the large model reads ${trace.confidence ? "the chosen tree" : "all guesses"}.`,
    route: "The surer head's tree goes on.", merge: "One tree of both: a row for each prefix.", down: "Scores: the chance that the path goes through.",
    up: "The chance that the path ends at each node. One draw picks.",
    accept: trace.rule === "coins" ? `A guess stays if its coin is below p / q. The first that fails is replaced by the large model.`
      : trace.rule === "walk" ? wants : "Blue: accepted guesses. Orange: the large model's own.", commit: `One pass wrote ${wrote}. The cache keeps ${several(kept.length, "row")} and forgets ${lost}.` };
  return frames.filter((f, i) => !frames[i + 1] || frames[i + 1].verb !== f.verb)
    .flatMap(f => f.verb === "draft" && trace.names[2] ? [1, 2].map(head => ({ ...f, head, text: `${upper(trace.names[head - 1])} guesses. Shown is what gets a row.`,
      scores: [], gone: rows.filter(row => trace.groups[row] === 3 - head) })) : [{ ...f, text: brief[f.verb] }]);
}

// ---- the draft tree

const BOX = 30, is = name => root.classList.contains(name);
const narrow = () => innerWidth < 500 || is("still");
const waiting = f => ["draft", "merge", "route"].includes(f.verb);  // the target has read nothing yet

function layout() {  // depth to the right; each leaf has a line of its own, a parent is centred
  const place = [], end = last(trace.kept), line = trace.rule === "coins" ? 80 : 66;
  // Side by side there is room for two numbers, or above each other for one.
  const step = narrow() ? Math.max(chain ? 46 : 62, Math.min(70, 242 / (Math.max(...depth, depth[end] + 1)))) : chain ? 72 : 100;
  let lines = 0, next;
  const visit = (row, deep) => {
    const kids = below(row), x = deep * step;
    kids.forEach(kid => visit(kid, deep + 1));
    place[row] = { x, y: kids.length ? (place[kids[0]].y + place[last(kids)].y) / 2 : lines++ * line };
    // The target's own token gets a line of its own below them: no node's place tells the verdict.
    if (row === end) next = { x: x + step, y: kids.length ? lines++ * line : place[row].y };
  };
  visit(0, 0);
  return { place, next, step, height: (Math.max(lines, chain ? 2 : 1) - 1) * line };
}

// What became of a node, and whose guess it was, as classes.
function kind(row, f) {
  const asked = trace.rule === "layers" || !f.rejected.includes(trace.parents[row]);
  return `head${trace.groups[row] === 3 && f.head || trace.groups[row]} ` + (!row ? "root" : f.accepted.includes(row) ? "accepted"
    : f.gone.includes(row) || !asked ? "unasked" : f.rejected.includes(row) ? "rejected" : "");
}

const label = (x, y, kind, text) => make(`text.${kind}`, { x, y }, text);

function box(at, text, kind, row) {
  return make(`g.node ${kind}`, { transform: `translate(${at.x} ${at.y})`, "data-row": row },
    make("rect", { x: -BOX / 2, y: -BOX / 2, width: BOX, height: BOX, rx: 6 }),
    make("path", { d: "M-18 18 l9 -9 M18 -18 l-9 9" }),  // for a rejected one: past the letter
    label(0, 5, text.length > 2 ? "" : "letter", text));
}

// Above its node: the frame's score, or q while the tree grows, or p and q.
function numbers(row, f, at) {
  const judged = f.judged[row] || { coin: [], q: guess(row),
    p: row < trace.verified ? trace.p[trace.parents[row]][trace.tokens[row]] : null };
  const { p, q, coin } = judged, y = at.y - BOX / 2 - 8;
  const shown = f.scores ? [[f.scores[row], ""]] : [[waiting(f) ? null : p, "p"], [q, "q"]];
  const pairs = shown.filter(([value]) => value != null).map(([value, kind]) => [chain && value >= .01 ? value.toFixed(3).replace(/^0/, "") : short(value), kind]);
  if (chain) {
    const lines = [...coin.map(text => [text, "coin"]), ...pairs].reverse();
    const names = [words.q, ...p == null || waiting(f) ? [] : [words.p], "p / q", "coin"];
    return lines.flatMap(([text, kind], i) => [label(at.x, y - 14 * i, kind, text),  // the first one's have names
      ...row === 1 && !f.scores ? [label(at.x - BOX / 2 - 6, y - 14 * i, `${kind} last`, names[i])] : []]);
  }
  return [make("text", { x: at.x, y }, ...pairs.map(([value, kind], i) =>
    make(`tspan.${kind}`, { dx: i ? 5 : 0 }, value))), ...coin.map((text, i) =>
    label(at.x - 4, at.y + 27 + 13 * i, "coin last", text))];
}

function drawTree(f) {
  const { place, next, step, height } = layout(), edges = [], parts = [];
  const context = visible(trace.context).slice(narrow() ? -2 : -6);
  const edge = (a, b, kind) => edges.push(make(`path.edge ${kind}`, { d: `M${a.x + BOX / 2} ${a.y} `
    + `C${a.x + step / 2} ${a.y} ${b.x - step / 2 - 10} ${b.y} ${b.x - BOX / 2} ${b.y}` }));
  range(f.shown).forEach(row => {
    const at = place[row], here = kind(row, f);
    if (row) edge(place[trace.parents[row]], at, here);
    if (row && !f.gone.includes(row) && !f.kept) parts.push(...numbers(row, f, at));
    const now = f.focus.includes(row) && (f.verb === "accept" || f.verb === "verify" && !f.focus[1]) ? " now" : "";
    parts.push(box(at, text(row), here + now, row), label(at.x + 12, at.y + 28, "small", row));
  });
  if (f.verb === "route") trace.confidence.forEach((_, i) => {  // right of the last node of each head's tree
    const at = last(range(f.shown).filter(row => trace.groups[row] === i + 1).map(row => place[row])
      .sort((a, b) => a.y - b.y || a.x - b.x));
    parts.push(label(at.x + BOX / 2 + 40, at.y + 5, "letter", `sum ${expected(i)}`));
  });
  if (f.next) {
    edge(place[f.next.parent], next, "own");
    parts.push(box(next, f.next.text, "own", ""));
  }
  parts.push(label(-BOX / 2 - 9, place[0].y + 5, "letter small last", context));
  const left = 22 + 9 * context.length + BOX / 2, top = chain ? -84 : -38, svg = ui.tree, view = svg.parentNode;
  const width = left + Math.max(...place.map(at => at.x), next.x) + 32, high = height + 50 - top;
  // At least at natural size, so that no text falls below 11 px; what does not fit scrolls.
  svg.style.width = `max(${width}px, min(100%, ${Math.min(1.3 * width, 500 * width / high)}px))`;
  svg.setAttribute("viewBox", `${-left} ${top} ${width} ${high}`);
  svg.replaceChildren(svg.firstElementChild, ...edges, ...parts);
  svg.setAttribute("aria-label", `draft tree: ${range(f.shown).map(row => `${row} ${text(row)} `
    + `${row ? `after ${trace.parents[row]} ` : ""}${kind(row, f).slice(6)}`).join(", ")}${f.next ? `; then ${f.next.text}` : ""}`);
  view.classList.toggle("cut", view.scrollWidth > view.clientWidth + 1);
  const shown = f.next ? next.x : Math.max(...f.focus.map(row => place[row].x));
  view.scrollLeft = left + shown + 60 - view.clientWidth;  // what the caption speaks of comes into view
  const entry = ([kind, name]) => make("span", make(`i.cell ${kind}`), ` ${name}`);
  const numbered = f.scores ? [f.ends ? "the chance that the path ends at the node" : trace.scores_are]
    : [make("b.p", "p"), ` of ${words.target}, `, make("b.q", "q"), ` of ${words.drafter}`,
    make("b", trace.rule === "coins" && Math.max(...trace.p[0]) < 1 ? ", coin against p / q" : "")];
  const kinds = [["root", "the root"], ["accepted", "accepted"], ["rejected", trace.rule === "walk" ? "not drawn" : "rejected"], ["own", `${words.target}'s own`]];
  ui.legend.replaceChildren(...[...kinds, ...trace.names.map((name, i) => [`head${i + 1}`, name])].map(entry),
    ...f.head ? [] : [make("span", "numbers: ", ...numbered)]);
}

// ---- mask, bars, dice, cache

function drawMask(f) {
  const rows = range(trace.verified), kind = (row, column) => row >= f.shown ? ""
    : column < 0 || trace.paths[row].includes(column) ? "on" : trace.sees[row].includes(column) ? "leak" : "";
  ui.mask.replaceChildren(...rows.map(row => make(`tr.${f.focus.includes(row) ? "now" : ""}`,
    make("th", `${row} ${text(row)}`), ...[-1, ...rows].map(column => make(`td.${kind(row, column)}`)))),
    make("tr", ...["row", "\u2026", ...rows.map(text)].map(name => make("th", name))));
}

function chart({ title, rows }) {
  const most = Math.max(...rows.flatMap(row => row.values.map(([, , value]) => value || 0)), .01);
  return make("div", make("h3", title), ...rows.map(({ text, marked, values }) =>
    make(`div.bar ${marked ? "marked" : ""}`, make("b", text), make("div", ...values.map(([name, kind, value]) =>
      make(`p.${kind}`, make("i", { style: `width: ${75 * (value || 0) / most}%` }),
        value === undefined ? `${name} not known` : `${name} ${digits(value)}`))))));
}

function dice({ u, value, kind, parts }) {  // the unit interval, and where u falls
  return make("div.unit", { role: "img", "aria-label": `u = ${digits(u)} falls on ${parts[value][0]}` },
    ...parts.map(([name, share], i) => make(`span.${i === value ? `hit ${kind}` : ""}`, { style: `flex: ${share}` },
      share > .05 || i === value ? name : "")), make("i", { style: `left: ${100 * u}%` }));
}

function drawCache(f) {  // what is kept moves to the front, the rest fades
  const all = range(waiting(f) ? 0 : trace.verified), rows = [...new Set([...f.kept || [], ...all])];
  const cell = (kind, text, note) => make(`span.cell ${kind}`, text, make("small", note));
  ui.cache.replaceChildren(cell("", `\u2026${visible(trace.context.slice(-5))}`, `${trace.committed} rows`),
    ...rows.map(row => cell(f.kept ? kind(row, f) : "", text(row), row)));
}

// ---- frames

function show(given, frame = 0) {
  prepare(given);
  const verbs = trace.frames.map(f => f.verb);
  ui.verbs.replaceChildren(...[...new Set(verbs)].map(verb => make("button", { onclick: () => go(verbs.indexOf(verb)) }, verb)));
  ui.on.onclick = () => move(1);
  ui.back.onclick = () => move(-1);
  ui.play.onclick = play;
  reserve();
  go(frame);
}
let move = by => go(now + by);

function reserve() {  // the caption keeps the height of the longest one: nothing below it moves
  const caption = ui.text;
  caption.style.minHeight = 0;
  caption.style.minHeight = Math.max(...trace.frames.map(f => {
    caption.textContent = f.text;
    return caption.scrollHeight;
  })) + "px";
}

function go(index) {
  now = Math.min(Math.max(index, 0), trace.frames.length - 1);
  const f = trace.frames[now], mark = (kind, text) => make(`i.cell ${kind}`, text);
  ui.text.textContent = f.text;
  ui.count.textContent = `${now + 1} / ${trace.frames.length}`;
  for (const chip of ui.verbs.children) chip.setAttribute("aria-current", chip.textContent === f.verb);
  ui.back.setAttribute("aria-disabled", !now);
  ui.on.setAttribute("aria-disabled", now === trace.frames.length - 1);
  ui.sofar.replaceChildren("text so far: \u2026", trace.context.slice(is("still") ? -14 : -60).replace(/\n/g, "\u21b5"),
    mark("root", text(0)), ...trace.kept.slice(1).filter(row => f.accepted.includes(row)).map(row => mark("accepted", text(row))),
    ...(f.next ? [mark("own", f.next.text)] : []));
  // A panel that has nothing to say is hidden.
  ui.maskcard.hidden = f.verb !== "draft" && f.verb !== "merge" && f.verb !== "verify";
  ui.barscard.hidden = !f.charts.length && !f.unit;
  ui.cachecard.hidden = f.verb !== "commit" && (is("still") || !is("embed") && f.verb !== "verify");
  ui.legend.hidden = is("still") && !ui.cachecard.hidden;
  drawTree(f);
  drawMask(f);
  ui.bars.replaceChildren(...f.charts.map(chart), ...(f.unit ? [dice(f.unit)] : []));
  drawCache(f);
  if (timer) wait();
}

function wait() {  // as long as the caption takes to read
  clearTimeout(timer);
  timer = setTimeout(() => now < trace.frames.length - 1 ? go(now + 1) : play(), 1500 + 60 * trace.frames[now].text.length);
}
function play() {
  if (timer) timer = clearTimeout(timer);
  else { wait(); if (now === trace.frames.length - 1) go(0); }
  ui.play.textContent = timer ? "pause" : "play";
}

onresize = () => { if (trace) { reserve(); go(now); } };

// What is asked for in the address, or the book's choice, or the device's
let theme = asked.get("theme");
try { theme ||= localStorage.theme; } catch (e) { /* a page from the disk */ }
for (const name of ["embed", "still"]) root.classList.toggle(name, asked.has(name));
root.dataset.theme = /dark|light/.test(theme) ? theme : matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
