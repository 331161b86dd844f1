// Branch colours, the same in every view. They are assigned in creation order, so that neighbours differ.

const COLOURS = 8;
const dealt = new Map();

/** Assign colours to the branches of a session. */
export function deal(branches) {
  dealt.clear();
  branches.forEach(({ id }, place) => dealt.set(id, place % COLOURS));
}

/** Return the CSS class of the branch colour. */
export const colourOf = (id) => `strand-${dealt.get(id) ?? 0}`;
