// Formatting of numbers, times and texts.

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

/** Format a value: strings as they are, everything else as JSON. */
export function plainly(value) {
  if (value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

// Invisible and bidirectional characters: they could disguise the arguments that a person approves.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

/** Replace each invisible character by its code point. */
export const visible = (text) => text.replace(UNSEEN, (sign) => `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);

/** Summarize Markdown in one line; headings are skipped unless there is nothing else. */
export function gist(text, limit = 200) {
  const lines = (text ?? '').split('\n').filter((row) => row.trim());
  const body = lines.filter((row) => !row.startsWith('#')).map((row) => row.replace(/^[-*] |~~|\*\*|`/g, ''));
  return line((body.length ? body : lines).join(' · '), limit);
}

/** Return the first line of a text, truncated to `limit`. */
export function line(text, limit = 80) {
  const first = (text ?? '').trim().split('\n', 1)[0];
  return first.length > limit ? `${first.slice(0, limit - 1)}…` : first;
}
