// Where each branch stands in the picture of a session. A branch is a strand: it leaves another at its
// fork point, runs through the points where others leave it, and ends at its head. Each head has a row
// of its own, so names never overlap; along a strand, distance grows with the messages between.
import { cluster, hierarchy } from './vendor/d3-hierarchy.min.mjs';

export const ROW = 36;
const NEAREST = 30;
const PER_DOUBLING = 16;
const COLOURS = 8;

/** {points, links, width, height} of the branches under `roots`, the nodes of the server's tree. */
export function layout(roots) {
  const forks = placed(roots);
  const tree = hierarchy({ kind: 'start', at: 0, next: roots.map((root) => strand(root, forks)) }, (node) => node.next);
  cluster().nodeSize([ROW, 1]).separation(() => 1)(tree);
  let [top, bottom, right] = [Infinity, -Infinity, 0];
  tree.each((node) => {
    node.across = node.depth < 2 ? 0 : node.parent.across + gap(node.data.at - node.parent.data.at);
    if (node.depth === 0) return;
    top = Math.min(top, node.x);
    bottom = Math.max(bottom, node.x);
    right = Math.max(right, node.across);
  });
  const down = (node) => node.x - top;
  const points = tree.descendants().filter((node) => node.depth > 0)
    .map((node) => ({ ...node.data, x: node.across, y: down(node) }));
  const links = tree.links().filter(({ source }) => source.depth > 0)
    .map(({ source, target }) => ({ branch: target.data.branch, line: curve(source.across, down(source), target.across, down(target)) }));
  return { points, links, width: right, height: Math.max(0, bottom - top) };
}

/** A colour for a branch, the same wherever it is drawn. */
export function colourOf(id) {
  let sum = 0;
  for (const letter of id) sum = (sum * 31 + letter.charCodeAt(0)) >>> 0;
  return `strand-${sum % COLOURS}`;
}

function gap(messages) {
  return NEAREST + PER_DOUBLING * Math.log2(1 + Math.max(0, messages));
}

function curve(x1, y1, x2, y2) {
  if (y1 === y2) return `M${x1} ${y1}H${x2}`;
  const bend = x1 + Math.min(44, x2 - x1);
  const half = (x1 + bend) / 2;
  return `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${bend} ${y2}H${x2}`;
}

// A fork of a fork may leave it where it still shares its parent's messages: it hangs on the strand
// that those messages belong to.
function placed(roots) {
  const forks = new Map();
  const above = new Map();
  const todo = roots.map((branch) => ({ branch, parent: null }));
  for (let next = todo.pop(); next; next = todo.pop()) {
    const { branch } = next;
    let { parent } = next;
    while (parent && above.has(parent.id) && branch.forked_at <= parent.forked_at) parent = above.get(parent.id);
    if (parent) {
      above.set(branch.id, parent);
      forks.set(parent.id, [...(forks.get(parent.id) ?? []), branch]);
    }
    todo.push(...branch.children.map((child) => ({ branch: child, parent: branch })));
  }
  return forks;
}

function strand(branch, forks) {
  const leaving = Map.groupBy(forks.get(branch.id) ?? [], (fork) => fork.forked_at);
  const places = [...leaving.keys()].sort((a, b) => b - a);
  let node = { kind: 'head', branch, at: Math.max(branch.message_count, places[0] ?? 0) };
  for (const at of places) {
    const others = leaving.get(at).sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
    node = { kind: 'fork', branch, at, next: [node, ...others.map((fork) => strand(fork, forks))] };
  }
  return node;
}
