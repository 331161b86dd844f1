// What the model saw when it gave an answer: every part of its prompt, in order, with its tokens. Parts
// that stand on no branch (memories, summaries) say where they came from.
import { get } from './api.js';
import { Icon } from './icons.js';
import { pageLink } from './route.js';
import { Empty, Failed } from './states.js';
import { html, useEffect, useState } from './view.js';
import { gist, many, number } from './words.js';

const KINDS = {
  system: 'System', memory: 'Memory', profile: 'Profile', summary: 'Summary', message: 'Message',
  tools: 'Tools', replaced: 'Summary of earlier messages',
};

export function SeenPanel({ transcript, message, close }) {
  const [seen, setSeen] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    setSeen(null);
    setError(null);
    get(transcript.url('messages', message.id, 'seen')).then(setSeen, setError);
  }, [message.id]);
  return html`<aside class="panel" aria-label="What the model saw">
    <header class="panel-head"><h2>What the model saw</h2>
      <button class="icon-button" aria-label="Close" onClick=${close}><${Icon} name="close" /></button></header>
    ${error && html`<${Failed} error=${error} />`}
    ${!seen && !error && html`<${Empty}>Looking…<//>`}
    ${seen && html`<${Parts} seen=${seen} />`}
  </aside>`;
}

function Parts({ seen }) {
  const most = Math.max(1, ...seen.parts.map(({ tokens }) => tokens));
  return html`<div class="panel-body">
    <p class="seen-sum"><b>${number(seen.counted ?? seen.tokens)}</b> tokens, ${seen.counted ? 'as counted by the model' : 'estimated'} · ${many(seen.parts.length, 'part')}${seen.model && html` · <span class="tool-name">${seen.model}</span>`}</p>
    <${Shares} seen=${seen} />
    <ol class="parts">${seen.parts.map((part, index) => html`<${Part} key=${index} part=${part} most=${most} />`)}</ol>
  </div>`;
}

function Shares({ seen }) {
  const sums = new Map();
  for (const { kind, tokens } of seen.parts) sums.set(kind, (sums.get(kind) ?? 0) + tokens);
  return html`<div class="shares" role="img" aria-label=${[...sums].map(([kind, tokens]) => `${KINDS[kind] ?? kind}: ${tokens} tokens`).join(', ')}>
    ${[...sums].map(([kind, tokens]) => html`<span key=${kind} class="share kind-${kind}" style=${{ flexGrow: tokens || 1 }} title="${KINDS[kind] ?? kind}: ${tokens} tokens"></span>`)}
  </div>`;
}

function Part({ part, most }) {
  return html`<li><details class="part kind-${part.kind}">
    <summary><span class="part-kind">${KINDS[part.kind] ?? part.kind}</span>
      <span class="peek">${gist(part.text, 60)}</span>
      <span class="tokens">${number(part.tokens)}</span>
      <span class="meter"><span style=${{ width: `${(100 * part.tokens) / most}%` }}></span></span></summary>
    ${part.uri && html`<p><a href=${pageLink('memory', { uri: part.uri })}>${part.uri}</a></p>`}
    <pre>${part.text ?? 'It was erased since.'}</pre>
  </details></li>`;
}
