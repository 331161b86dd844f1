// The branch tree as an SVG: a head links to its branch, a fork point to its message. Names are links, so the
// tree works with a keyboard too.
import { path } from './api.js';
import { colourOf } from './colours.js';
import { useAnswer } from './reading.js';
import { sessionLink } from './route.js';
import { layout } from './strands.js';
import { Empty, Failed } from './states.js';
import { classes, html, useLayoutEffect, useMemo, useRef, useState } from './view.js';
import { line, many } from './words.js';

const MARGIN = { left: 24, right: 260, top: 24 };

export function TreeView({ session, branch, version }) {
  const [fit, setFit] = useState(false);
  const { answer, error, again } = useAnswer(path('sessions', session.id, 'tree'), version);
  const roots = useMemo(() => nested(answer?.branches ?? []), [answer]);
  if (error) return html`<${Failed} error=${error} again=${again} />`;
  if (!answer) return html`<${Empty}>Drawing the branches…<//>`;
  return html`<section class="tree" aria-label="Branch tree">
    <div class="tree-bar">
      <p>Each line is a branch. Click a name to open it, or a fork point (●) to see the message it forks from.</p>
      <button class="button quiet" aria-pressed=${fit} onClick=${() => setFit(!fit)}>${fit ? 'Full size' : 'Fit'}</button>
    </div>
    <${Picture} roots=${roots} session=${session} branch=${branch} fit=${fit} />
  </section>`;
}

function Picture({ roots, session, branch, fit }) {
  const began = performance.now();
  const box = useRef(null);
  const drawn = useMemo(() => layout(roots, branch.id), [roots, branch.id]);
  useLayoutEffect(() => {
    box.current.getBoundingClientRect();
    performance.measure('sennit:tree', { start: began, end: performance.now() });
    box.current.querySelector('.head.here')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [roots]);
  const width = drawn.width + MARGIN.left + MARGIN.right;
  const height = drawn.height + MARGIN.top * 2;
  return html`<div class=${classes('tree-scroll', fit && 'fit')} tabindex="0" ref=${box}>
    <svg class="picture" viewBox="0 0 ${width} ${height}" width=${width} height=${height} role="group">
      <g transform="translate(${MARGIN.left} ${MARGIN.top})">
        ${strokes(drawn.links).map(([look, lines]) => html`<path key=${look} class="strand ${look}" d=${lines.join('')} />`)}
        ${drawn.points.map((point) => html`<${POINTS[point.kind]} point=${point} session=${session} here=${point.branch.id === branch.id} />`)}
      </g>
    </svg>
  </div>`;
}

// One path for all lines of the same style: hundreds of branches are a handful of elements.
function strokes(links) {
  const alike = Map.groupBy(links, (link) => classes(colourOf(link.branch.id), link.own && 'own'));
  return [...alike].map(([look, some]) => [look, some.map(({ line: drawn }) => drawn)]).sort(([a], [b]) => a.includes('own') - b.includes('own'));
}

function Start({ point: { branch, x, y } }) {
  return html`<circle class="start ${colourOf(branch.id)}" cx=${x} cy=${y} r="5" />`;
}

function Head({ point: { branch, x, y }, session, here }) {
  const state = branch.running ? ' · answering' : branch.waiting ? ' · waiting for you' : '';
  return html`<a class=${classes('head', colourOf(branch.id), here && 'here')} href=${sessionLink(session.id, branch.id)}
      aria-current=${here ? 'true' : undefined} aria-label="${branch.name}, ${many(branch.message_count, 'message')}${state}">
    <circle cx=${x} cy=${y} r=${here ? 7 : 5} /><text x=${x + 14} y=${y + 4}>${line(branch.name, 28)} · ${branch.message_count}${state}</text>
  </a>`;
}

function Fork({ point: { branch, at, x, y }, session }) {
  return html`<a class="fork" href=${sessionLink(session.id, branch.id, { at: Math.max(0, at - 1) })}
    aria-label="Fork point after message ${at}"><circle cx=${x} cy=${y} r="5" /></a>`;
}

const POINTS = { start: Start, fork: Fork, head: Head };

/** Branches as trees: each with the `children` that were forked from it. */
function nested(branches) {
  const known = new Map(branches.map((branch) => [branch.id, { ...branch, children: [] }]));
  const roots = [];
  for (const branch of known.values()) (known.get(branch.parent)?.children ?? roots).push(branch);
  return roots;
}
