// Days as stacked bars, one colour per model. The chart library is loaded when a chart is first shown.
import { html, useEffect, useRef, useState } from './view.js';

const HEIGHT = 220;
const DAY = 86_400;
const COLOURS = 8;
const date = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', timeZone: 'UTC' });

export function DayChart({ days, rows, value, shown }) {
  const box = useRef(null);
  const [theme, setTheme] = useState(0);
  const models = [...new Set(rows.map(({ model }) => model))];
  const total = (model) => rows.reduce((sum, row) => sum + (row.model === model ? value(row) : 0), 0);
  useEffect(() => {
    const changed = () => setTheme((count) => count + 1);
    addEventListener('themechange', changed);
    const system = matchMedia('(prefers-color-scheme: dark)');
    system.addEventListener('change', changed);
    return () => { removeEventListener('themechange', changed); system.removeEventListener('change', changed); };
  }, []);
  useEffect(() => {
    const place = box.current;
    let plot = null;
    let gone = false;
    const sizes = new ResizeObserver(() => plot?.setSize({ width: place.clientWidth, height: HEIGHT }));
    import('./vendor/uPlot.mjs').then(({ default: Plot }) => {
      if (gone) return;
      plot = drawn(Plot, place, { models, stacks: stacked(days, rows, models, value), shown });
      sizes.observe(place);
    });
    return () => { gone = true; sizes.disconnect(); plot?.destroy(); };
  }, [rows, days, theme]);
  return html`<figure class="chart">
    <div class="canvas" ref=${box} role="img" aria-label="Bar chart of the last ${days} days"></div>
    <figcaption class="legend">${models.map((model, index) => html`<span key=${model} class="strand-${index % COLOURS}"><i class="dot"></i>${model} <b>${shown(total(model))}</b></span>`)}</figcaption>
  </figure>`;
}

/** [times, then for each model the height up to its top], days without runs included. */
function stacked(days, rows, models, value) {
  const today = Math.floor(Date.now() / 1000 / DAY) * DAY;
  const times = Array.from({ length: days }, (_, index) => today - (days - 1 - index) * DAY);
  const place = new Map(times.map((time, index) => [time, index]));
  const heights = models.map(() => new Array(days).fill(0));
  for (const row of rows) {
    const index = place.get(Date.parse(`${row.date}T00:00:00Z`) / 1000);
    if (index !== undefined) heights[models.indexOf(row.model)][index] += value(row);
  }
  for (let model = 1; model < heights.length; model += 1) {
    heights[model] = heights[model].map((height, index) => height + heights[model - 1][index]);
  }
  return [times, ...heights];
}

function drawn(Plot, box, { models, stacks, shown }) {
  const [times, ...tops] = stacks;
  const bars = Plot.paths.bars({ size: [0.7, 28], radius: 0.2 });
  const ink = colour(box, 'var(--ink-faint)');
  const grid = { stroke: colour(box, 'var(--line)'), width: 1 };
  const axis = { stroke: ink, grid, ticks: { show: false }, font: '12px system-ui' };
  // The tallest stack is drawn first, so that each model's part stays in sight.
  const series = models.map((label, index) => ({ label, paths: bars, points: { show: false }, width: 0, fill: colour(box, 'var(--strand)', `strand-${index % COLOURS}`) })).reverse();
  return new Plot({
    width: box.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { show: false },
    tzDate: (seconds) => Plot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    scales: { x: { time: true, range: (_, low, high) => [low - DAY / 2, high + DAY / 2] }, y: { range: (_, low, high) => [0, (high || 1) * 1.1] } },
    axes: [{ ...axis, grid: { show: false }, space: 76, values: (_, ticks) => ticks.map((time) => date.format(time * 1000)) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(shown) }],
    series: [{}, ...series],
  }, [times, ...tops.reverse()], box);
}

function colour(box, value, name) {
  const probe = document.createElement('i');
  if (name) probe.className = name;
  probe.style.color = value;
  box.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
