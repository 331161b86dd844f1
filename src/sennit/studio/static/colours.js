// A colour for each branch, the same wherever it is drawn: they are dealt out in the order in which the
// branches were made, so that neighbours differ.

const COLOURS = 8;
const dealt = new Map();

/** Deal colours to the branches of a session. */
export function deal(branches) {
  dealt.clear();
  branches.forEach(({ id }, place) => dealt.set(id, place % COLOURS));
}

/** The name of the class that gives a branch its colour. */
export const colourOf = (id) => `strand-${dealt.get(id) ?? 0}`;
