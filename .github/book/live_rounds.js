// One round of speculation, as in chapters 01 and 02: draft, verify, accept, commit. A chain is a
// tree of width 1, so one path through this file serves both.

const onehot = (x, table) => table.map((_, y) => +(x === y));
const best = table => table.indexOf(Math.max(...table));

// Logits -> probabilities. Temperature 0 is a one-hot of the best: every rule is then greedy.
function sampler(logits, temperature) {
  const table = Array.from(logits), most = best(table);
  return temperature ? whole(table.map(x => Math.exp((x - table[most]) / temperature))) : onehot(most, table);
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
    last(this.draws).coin = p;
    return kept;
  }
}

function seeded(seed) {  // Lehmer's generator: the same address, the same text
  let state = seed % 2147483647 * 69621 + 12345;  // a larger seed could overflow
  return () => (state = state * 48271 % 2147483647) / 2147483647;
}

// ---- verify, draft

// A row of a tree sees itself and what its parent sees -> N rows of booleans
const ancestors = parents => lineage(parents).map(rows => parents.map((_, column) => rows.includes(column)));

// One forward over a tree behind the cache -> a row of logits a node
function read(model, cache, { tokens, parents }, mask = ancestors(parents)) {
  const positions = ancestors(parents).map(row => cache.length + sum(row) - 1);
  return model.forward(tokens, cache, positions, mask);
}

// The small model's tree below the root, a forward a level. branching: children a node, level by
// level; drawn: without replacement, or else the most probable; spoil: the share of a guess at
// random that is mixed into q. -> {tokens, parents, q}, q a row a node that was asked
function propose(model, cache, root, { branching, temperature, drawn, spoil = 0 }, dice) {
  const tree = { tokens: [root], parents: [-1], q: [] };
  for (const width of branching) {
    const logits = read(model, cache, tree);
    for (let node = tree.q.length; node < logits.length; node++) {
      const q = sampler(logits[node], drawn ? temperature : 1).map(x => (1 - spoil) * x + spoil / logits[node].length);
      const picked = drawn ? drawWithoutReplacement(q, width, dice) : highest(q, width);
      tree.q.push(q);
      tree.tokens.push(...picked);
      tree.parents.push(...picked.map(() => node));
    }
  }
  return tree;
}

function drawWithoutReplacement(table, n, dice) {
  const tokens = [], left = [...table];
  while (tokens.length < n && sum(left) > 0) {
    tokens.push(dice.draw(left));
    left[last(tokens)] = 0;  // an equal sibling would repeat an answered question
  }
  return tokens;
}

// ---- accept: (tree, p, dice) -> path, token

// The target's own draws decide; while a child is what was drawn, go there.
function walk(tree, p, dice) {
  const path = [0];
  for (;;) {
    const token = dice.draw(p[last(path)]);
    const matching = children(tree.parents, last(path)).find(row => tree.tokens[row] === token);
    if (matching === undefined) return [path, token];
    path.push(matching);
  }
}

// Each child in turn is kept with min(1, p / q); what was refused leaves p and q. On a chain this is
// chapter 01's rule.
function multiRound(tree, p, dice) {
  const path = [0];
  for (;;) {
    const node = last(path);
    let left = p[node], guess = tree.q[node] || [];
    const kept = children(tree.parents, node).find(child => {
      const token = tree.tokens[child];
      if (dice.flip(left[token] < guess[token] ? left[token] / guess[token] : 1)) return true;
      left = residual(left, guess);
      guess = without(guess, token);
      return false;
    });
    if (kept === undefined) return [path, dice.draw(left)];
    path.push(kept);
  }
}

// ---- the loop

class Speculation {
  constructor(target, drafter, prompt, temperature, random) {
    Object.assign(this, { target, drafter, text: [...prompt], dice: new Dice(random), drafts: 0 });
    this.cache = target.newCache();
    this.small = drafter.newCache();
    this.root = this.dice.draw(sampler(this.prefill(), temperature));
  }

  // Both read the text in one forward; if it does not fit the window, its end -> logits after it
  prefill() {
    const size = this.target.config.block_size;
    this.cache.length = this.small.length = 0;
    const read = this.text.length < size ? this.text : this.text.slice(-size / 2);
    this.drafter.forward(read, this.small);
    const logits = this.target.forward(read, this.cache);
    for (const cache of [this.cache, this.small]) cache.commit(range(read.length));
    return last(logits);
  }

  // One target forward -> what happened: the tree, p and q a row a node, the draws, what stayed.
  // how: branching, rule, temperature, spoil; guesses, if somebody else than the drafter guessed
  round({ guesses, ...how }) {
    const size = this.target.config.block_size;
    if (this.cache.length === size) this.prefill();
    this.dice.draws = [];
    const room = size - 1 - this.cache.length;  // the cache ends where the window ends: only there it slides
    how.branching = how.branching?.slice(0, room);
    guesses = guesses?.slice(0, room);
    const text = [...this.text], tokens = [this.root, ...guesses || []], drawn = how.rule !== walk;
    const tree = guesses ? { tokens, parents: tokens.map((_, row) => row - 1),
        q: guesses.map(guess => onehot(guess, range(this.target.config.vocab_size))) }
      : propose(this.drafter, this.small, this.root, { ...how, drawn }, this.dice);
    this.drafts += guesses ? 0 : how.branching.length;
    const p = read(this.target, this.cache, tree).map(logits => sampler(logits, how.temperature));
    const [kept, token] = how.rule(tree, p, this.dice), words = kept.map(row => tree.tokens[row]);
    this.cache.commit(kept);
    this.drafter.forward(words, this.small);
    this.small.commit(range(words.length));
    this.text.push(...words);
    this.root = token;
    return { ...tree, p, kept, text, committed: this.cache.length - kept.length, draws: this.dice.draws,
             emitted: [...words.slice(1), token], ...drawn ? { rule: "coins", drafted: "drawn" } : { rule: "walk", drafted: "top" } };
  }
}
