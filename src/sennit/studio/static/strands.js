// The layout of the branch tree. A branch is a strand: it starts at its fork point, passes the fork points of
// its children, and ends at its head. Each head has its own row, so names never overlap; the distance along a
// strand grows with the number of messages.
import { cluster, hierarchy } from './vendor/d3-hierarchy.min.mjs';

const ROW = 44;
const NEAREST = 44;
const PER_DOUBLING = 24;
const BEND = 64;

/** {points, links, width, height} of the branches under `roots`; `own` marks what leads to branch `here`. */
export function layout(roots, here) {
  const forks = placed(roots);
  const starts = roots.map((root) => ({ kind: 'start', branch: root, at: 0, next: [strand(root, forks)] }));
  const tree = hierarchy({ next: starts }, (node) => node.next);
  cluster().nodeSize([ROW, 1]).separation(() => 1)(tree);
  const nodes = tree.descendants().slice(1);
  for (const node of nodes) node.across = node.depth === 1 ? 0 : node.parent.across + gap(node.data.at - node.parent.data.at);
  for (let node = nodes.find(({ data }) => data.kind === 'head' && data.branch.id === here); node; node = node.parent) node.own = true;
  const top = nodes.reduce((least, { x }) => Math.min(least, x), Infinity);
  const place = (node) => ({ x: node.across, y: node.x - top });
  const points = nodes.map((node) => ({ ...node.data, ...place(node) }));
  const links = nodes.filter(({ depth }) => depth > 1)
    .map((node) => ({ branch: node.data.branch, own: node.own, line: curve(place(node.parent), place(node)) }));
  const most = (field) => points.reduce((largest, point) => Math.max(largest, point[field]), 0);
  return { points, links, width: most('x'), height: most('y') };
}

function gap(messages) {
  return NEAREST + PER_DOUBLING * Math.log2(1 + Math.max(0, messages));
}

function curve(from, to) {
  if (from.y === to.y) return `M${from.x} ${from.y}H${to.x}`;
  const bend = from.x + Math.min(BEND, to.x - from.x);
  const half = (from.x + bend) / 2;
  return `M${from.x} ${from.y}C${half} ${from.y} ${half} ${to.y} ${bend} ${to.y}H${to.x}`;
}

// A fork of a fork may start at a message shared with the grandparent: it is attached to the strand that
// owns the message.
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
      if (!forks.has(parent.id)) forks.set(parent.id, []);
      forks.get(parent.id).push(branch);
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
