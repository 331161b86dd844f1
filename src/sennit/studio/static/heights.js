// Row heights and offsets of a long list; unmeasured rows have an estimated height. Lookup and update take
// logarithmic time (a Fenwick tree), so a list of any length scrolls alike.

export class Heights {
  #guess;
  #known = [];
  #sums = [0];

  constructor(count, guess) {
    this.#guess = guess;
    this.resize(count);
  }

  get count() { return this.#known.length; }

  get total() { return this.before(this.count); }

  resize(count) {
    if (count < this.count) {
      const kept = this.#known.slice(0, count);
      this.#known = [];
      this.#sums = [0];
      for (const height of kept) this.#push(height);
    }
    while (this.count < count) this.#push(this.#guess);
  }

  set(index, height) {
    const change = height - this.#known[index];
    if (!change) return;
    this.#known[index] = height;
    for (let at = index + 1; at < this.#sums.length; at += at & -at) this.#sums[at] += change;
  }

  /** Return the total height of the rows before `index`. */
  before(index) {
    let sum = 0;
    for (let at = index; at > 0; at -= at & -at) sum += this.#sums[at];
    return sum;
  }

  /** Return the row at a vertical offset. */
  at(height) {
    let index = 0;
    let rest = height;
    for (let step = 1 << Math.floor(Math.log2(this.count || 1)); step; step >>= 1) {
      if (index + step <= this.count && this.#sums[index + step] <= rest) {
        index += step;
        rest -= this.#sums[index];
      }
    }
    return Math.min(index, Math.max(0, this.count - 1));
  }

  #push(height) {
    this.#known.push(height);
    const at = this.#sums.length;
    let sum = height;
    for (let step = 1; step < (at & -at); step <<= 1) sum += this.#sums[at - step];
    this.#sums.push(sum);
  }
}
