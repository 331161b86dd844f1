// Numbers and times as a person reads them.

const DAY = 86_400_000;
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const exact = new Intl.NumberFormat('en');
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const date = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });

export const number = (value) => exact.format(value);
export const short = (value) => (value < 10_000 ? exact.format(value) : compact.format(value));
export const many = (value, noun, nouns = `${noun}s`) => `${number(value)} ${value === 1 ? noun : nouns}`;
export const cost = (value) => (value ? `$${value.toFixed(value < 0.1 ? 4 : 2)}` : '–');

export function when(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return '';
  const days = Math.floor((startOfDay(new Date()) - startOfDay(time)) / DAY);
  if (days <= 0) return clock.format(time);
  if (days === 1) return 'yesterday';
  return days < 7 ? `${days} days ago` : date.format(time);
}

export function fully(text) {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? '' : time.toLocaleString();
}

function startOfDay(time) {
  return new Date(time.getFullYear(), time.getMonth(), time.getDate()).getTime();
}

/** A value of any kind as text: strings as they are, all else as JSON. */
export function plainly(value) {
  if (value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

/** What a text in Markdown is about, in a line: headings are left out unless there is nothing else. */
export function gist(text, limit = 200) {
  const lines = (text ?? '').split('\n').filter((one) => one.trim());
  const said = lines.filter((one) => !one.startsWith('#')).map((one) => one.replace(/^[-*] |~~|\*\*|`/g, ''));
  return line((said.length ? said : lines).join(' · '), limit);
}

/** The first line of a text, not longer than `limit`. */
export function line(text, limit = 80) {
  const first = (text ?? '').trim().split('\n', 1)[0];
  return first.length > limit ? `${first.slice(0, limit - 1)}…` : first;
}
