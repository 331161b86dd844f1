// The usage page: tokens and cost per day and model as charts, per session as a table.
import { query } from './api.js';
import { DayChart } from './charts.js';
import { useAnswer } from './reading.js';
import { sessionLink, useTitle } from './route.js';
import { titleOf } from './sessions.js';
import { Empty, Failed } from './states.js';
import { classes, html, useState } from './view.js';
import { cost, line, number, short } from './words.js';

const SPANS = [[7, '7 days'], [30, '30 days'], [90, '90 days']];

export function UsagePage() {
  const [days, setDays] = useState(30);
  useTitle('Usage');
  const { answer: usage, error, again } = useAnswer('/api/usage' + query({ days }));
  return html`<div class="page">
    <header class="page-head"><h1>Usage</h1><p>Tokens and cost of all answers, by day, model and session.</p></header>
    <nav class="filters" aria-label="Period">${SPANS.map(([count, words]) => html`<button key=${count} class=${classes('filter', count === days && 'here')}
      aria-pressed=${count === days} onClick=${() => setDays(count)}>${words}</button>`)}</nav>
    ${error && html`<${Failed} error=${error} again=${again} />`}
    ${!usage && !error && html`<${Empty}>Loading…<//>`}
    ${usage?.days.length === 0 && html`<${Empty}><p>No answers in the last ${days} days.</p><a class="button" href="#/">Ask something</a><//>`}
    ${usage?.days.length > 0 && html`<${Report} usage=${usage} days=${days} />`}
  </div>`;
}

function Report({ usage, days }) {
  const sum = (field) => usage.days.reduce((total, day) => total + day[field], 0);
  const spent = sum('cost');
  return html`<div class="usage">
    <dl class="tiles">
      <div><dt>Answers</dt><dd>${short(sum('turns'))}</dd></div>
      <div><dt>Tokens in</dt><dd>${short(sum('input_tokens'))}</dd></div>
      <div><dt>Tokens out</dt><dd>${short(sum('output_tokens'))}</dd></div>
      <div><dt>Cost</dt><dd>${cost(spent)}</dd></div>
    </dl>
    <section class="chart-card"><h2>Tokens per day</h2>
      <${DayChart} days=${days} rows=${usage.days} value=${(row) => row.input_tokens + row.output_tokens} shown=${short} /></section>
    ${spent > 0 && html`<section class="chart-card"><h2>Cost per day</h2>
      <${DayChart} days=${days} rows=${usage.days} value=${(row) => row.cost} shown=${cost} /></section>`}
    <section class="chart-card"><h2>By session</h2>
      <div class="table-scroll"><table class="table"><thead><tr><th>Session</th><th>Answers</th><th>Tokens in</th><th>Tokens out</th><th>Cost</th></tr></thead>
      <tbody>${usage.sessions.map((one) => html`<tr key=${one.id}>
        <td><a href=${sessionLink(one.id)}>${line(titleOf(one), 60)}</a></td>
        <td>${number(one.turns)}</td><td>${number(one.input_tokens)}</td><td>${number(one.output_tokens)}</td><td>${cost(one.cost)}</td></tr>`)}</tbody></table></div></section>
  </div>`;
}
