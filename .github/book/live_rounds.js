// One round of speculation, as in chapters 01 and 02: draft, verify, accept, commit. A chain is a
// tree of width 1, so one path through this file serves both. The names are those of
// chain_specdec.py and tree_attention.py.

const sum = table => table.reduce((a, b) => a + b, 0);
const scaled = table => { const total = sum(table); return table.map(x => x / total); };

// Logits -> probabilities. Temperature 0 is a one-hot of the best: every rule is then greedy.
function sampler(logits, temperature) {
  const best = Math.max(...logits), table = Array.from(logits);
  if (!temperature) return table.map((_, token) => +(token === table.indexOf(best)));
  return scaled(table.map(x => Math.exp((x - best) / temperature)));
}

// The only source of chance. random() -> u in [0, 1), noted in `draws` with what it fell on.
class Dice {
  constructor(random) { this.random = random; this.draws = []; }

  draw(table) {  // the first token at which the sum passes a random share of the whole
    const u = this.random();
    let left = u * sum(table), value = -1;
    table.forEach((p, token) => {
      if (left >= 0 && p > 0) value = token;  // past the end rounding leaves the last possible one
      left -= p;
    });
    this.draws.push({ u, value });
    return value;
  }

  flip(p) {  // true with probability p
    const kept = this.draw([1 - p, p]) === 1;
    this.draws[this.draws.length - 1].coin = p;
    return kept;
  }
}

// ------------------------------------------------------------------ draft

class Drafter {  // TreeGPT of chapter 02: a small GPT that reads a whole level in one forward
  constructor(model) {
    this.model = model;
    this.cache = model.newCache();
    this.reset();
  }

  reset() { this.cache.length = this.committed = 0; this.pending = []; }

  observe(tokens) {  // these were committed; the round's root and drafts are forgotten
    this.pending = [...this.pending, ...tokens];
    this.cache.length = this.committed;
  }

  level(tokens, parents) {  // n new nodes, their parents' rows -> n rows of logits after each
    let logits;
    if (parents[0] === -1) {  // the root: one row behind the text
      const unread = [...this.pending, ...tokens];
      logits = this.model.forward(unread, this.cache).slice(-1);
      this.cache.commit([...unread.keys()]);
      this.committed += this.pending.length;
      this.pending = [];
      this.seen = [[true]];  // who sees whom
    } else {
      const older = this.seen.length, n = tokens.length;
      // A new row sees what its parent sees, and itself.
      const mask = parents.map((parent, i) => [...Array(older + n).keys()].map(
        row => row < older ? !!this.seen[parent][row] : row === older + i));
      const positions = mask.map(row => this.committed + sum(row) - 1);
      logits = this.model.forward(tokens, this.cache, positions, mask);
      this.cache.commit([...tokens.keys()]);
      this.seen.push(...mask);
    }
    return logits;
  }

  // branching: children a node for each level. With a dice they are drawn without replacement,
  // without one they are the most probable. -> {tokens, parents, q}, q a row a node
  propose(root, branching, temperature, dice) {
    const tokens = [root], parents = [-1], q = [];
    let level = [0];
    for (const width of branching) {
      const logits = this.level(level.map(row => tokens[row]), level.map(row => parents[row]));
      level.forEach((node, i) => {
        q.push(sampler(logits[i], dice ? temperature : 1));
        const picked = dice ? drawWithoutReplacement(q[node], width, dice) : top(q[node], width);
        tokens.push(...picked);
        parents.push(...picked.map(() => node));
      });
      level = [...tokens.keys()].slice(level[level.length - 1] + 1);
    }
    const V = this.model.config.vocab_size;  // the deepest nodes were never asked: zeros
    return { tokens, parents, q: tokens.map((_, row) => q[row] || Array(V).fill(0)) };
  }
}

const top = (table, n) => [...table.keys()].sort((a, b) => table[b] - table[a]).slice(0, n);

function drawWithoutReplacement(table, n, dice) {
  const tokens = [], left = [...table];
  while (tokens.length < n && sum(left) > 0) {
    tokens.push(dice.draw(left));
    left[tokens[tokens.length - 1]] = 0;  // an equal sibling would repeat an answered question
  }
  return tokens;
}

// ------------------------------------------------------------------ accept: (tree, p, dice) -> path, token

const children = (tree, node) => [...tree.parents.keys()].filter(row => tree.parents[row] === node);
const residual = (p, q) => {
  const missing = p.map((x, token) => Math.max(x - q[token], 0));
  return sum(missing) > 0 ? scaled(missing) : p;
};

// The target's own draws decide; while a child is what was drawn, go there.
function walk(tree, p, dice) {
  const path = [0];
  for (;;) {
    const token = dice.draw(p[path[path.length - 1]]);
    const matching = children(tree, path[path.length - 1]).find(row => tree.tokens[row] === token);
    if (matching === undefined) return [path, token];
    path.push(matching);
  }
}

// Each child in turn is kept with min(1, p / q); what was refused leaves p and q. On a chain this is
// chapter 01's rule.
function multiRound(tree, p, dice) {
  const path = [0];
  for (let node = 0; node !== undefined;) {
    let left = p[node], guess = [...tree.q[node]];
    const kept = children(tree, node).find(child => {
      const token = tree.tokens[child];
      if (dice.flip(left[token] < guess[token] ? left[token] / guess[token] : 1)) return true;
      left = residual(left, guess);
      guess[token] = 0;
      guess = scaled(guess);
      return false;
    });
    if (kept === undefined) return [path, dice.draw(left)];
    path.push(node = kept);
  }
}

// ------------------------------------------------------------------ the loop

class Speculation {
  constructor(target, drafter, prompt, temperature, random) {
    Object.assign(this, { target, drafter, text: [...prompt], dice: new Dice(random) });
    this.cache = target.newCache();
    this.root = this.dice.draw(sampler(this.prefill(), temperature));
  }

  // Read the text in one forward; if it does not fit the window, its end -> logits after it
  prefill() {
    const size = this.target.config.block_size;
    const read = this.text.length < size ? this.text : this.text.slice(-size / 2);
    this.cache.length = 0;
    const logits = this.target.forward(read, this.cache);
    this.cache.commit([...read.keys()]);
    this.drafter.reset();
    this.drafter.observe(read);
    return logits[logits.length - 1];
  }

  // One target forward -> what happened: the tree, p and q a row a node, the draws, what stayed
  round({ branching, rule, temperature }) {
    const size = this.target.config.block_size;
    if (this.cache.length === size) this.prefill();
    this.dice.draws = [];
    const room = branching.slice(0, size - 1 - this.cache.length), before = [...this.text];
    const tree = this.drafter.propose(this.root, room, temperature,
                                      rule === walk ? null : this.dice);
    const mask = tree.parents.reduce((seen, parent, row) => [...seen, tree.parents.map(
      (_, column) => column === row || parent >= 0 && seen[parent][column])], []);
    const committed = this.cache.length, positions = mask.map(row => committed + sum(row) - 1);
    const p = this.target.forward(tree.tokens, this.cache, positions, mask)
      .map(logits => sampler(logits, temperature));
    const [kept, token] = rule(tree, p, this.dice);
    this.cache.commit(kept);
    const read = kept.map(row => tree.tokens[row]);
    this.text.push(...read);
    this.drafter.observe(read);
    this.root = token;
    return { ...tree, p, kept, committed, text: before, draws: this.dice.draws,
             emitted: [...read.slice(1), token] };
  }
}

// ------------------------------------------------------------------ a round, as the renderer wants it

// letters: the vocabulary; more: chapter, title. What the fields mean: trace() in step.py.
function trace(round, letters, rule, more) {
  const shown = letters.map(letter => letter === "\n" ? "\\n" : letter === " " ? "\u2423" : letter);
  const guesses = round.tokens.map((token, row) => row ? round.q[round.parents[row]][token] : null);
  return { ...round, ...more, letters: shown, context: round.text.slice(-30).map(t => shown[t]),
           groups: round.tokens.map(() => 0), names: [], guesses, subtitle: "", say_draft: "",
           say_verify: "", rule: rule === walk ? "walk" : "coins",
           drafted: rule === walk ? "top" : "drawn" };
}
