// The one door to the server. Every answer is JSON or an ApiError with words for a person; a request
// that lacks a token wakes the login instead of failing in silence. While the server cannot be reached it
// is asked for until it answers; then `serverback` is dispatched, and views read again what they could not.
import { inTab } from './kept.js';

const KEEP = 'sennit.token';
const FIRST_WAIT = 500;
const LONGEST_WAIT = 8_000;
// Errors of the engine whose own words are about leases, ids and processes.
const PLAINLY = {
  busy: 'This branch is already answering in another window. Wait until it finishes.',
  elsewhere: 'Another process is producing this answer; it can only be stopped there.',
  moved: 'Someone else added a message here in the meantime.',
  nothing_to_resume: 'There is nothing to resume: the answer is complete.',
  not_found: 'Not found; it may have been deleted.',
  lost_lease: 'Another process took over this conversation.',
};
const waiting = new Set();
let lost = false;
let wait = FIRST_WAIT;
let back = 0;  // when the server answered again
let token = inTab.get(KEEP);

class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether the server is down, not yet up, or cannot be reached: asking again helps. */
  get passing() { return this.status === 0 || (this.status >= 502 && this.status <= 504); }
}

/** What to tell a person of a problem with that code. */
export const plainWords = (code, text) => PLAINLY[code] ?? text;

/** Call `again` when the server answers after it could not be reached; with `failed`, also if it has since. */
export function onBack(again, failed = false) {
  const timer = failed && !lost ? setTimeout(again) : null;
  addEventListener('serverback', again);
  return () => {
    clearTimeout(timer);
    removeEventListener('serverback', again);
  };
}

async function untilBack() {
  if (lost) return;
  lost = true;
  if (Date.now() - back > 2 * LONGEST_WAIT) wait = FIRST_WAIT;  // else it has too much to do
  for (; lost; wait = Math.min(wait * 2, LONGEST_WAIT)) {
    await pause(wait);
    lost = !await fetch('/api/ready', { cache: 'no-store' }).then(({ ok }) => ok, () => false);
  }
  back = Date.now();
  dispatchEvent(new Event('serverback'));
}

/** Until a time is over, the network or the server is back, or `signal` is aborted. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', over);
      removeEventListener('online', over);
      removeEventListener('serverback', over);
      resolve();
    };
    const timer = setTimeout(over, milliseconds);
    signal?.addEventListener('abort', over);
    addEventListener('online', over);
    addEventListener('serverback', over);
  });
}

/** Call `wake` whenever the server asks who is there. */
export function onLogin(wake) {
  waiting.add(wake);
  return () => waiting.delete(wake);
}

/** Use a token from now on; it is kept until this tab is closed. */
export function login(given) {
  token = given;
  if (given) inTab.set(KEEP, given);
  else inTab.remove(KEEP);
}

/** An address under /api from parts that may hold any character. */
export function path(...parts) {
  return '/api/' + parts.map(encodeURIComponent).join('/');
}

/** `?a=1&b=2` of what is set. */
export function query(given) {
  const set = Object.entries(given).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return set.length ? '?' + new URLSearchParams(set) : '';
}

/** A response, whatever it holds; an ApiError if the server refused. */
export async function open(method, address, { body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  const known = token;
  if (known) sent.Authorization = `Bearer ${known}`;
  if (body !== undefined) sent['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(address, {
      method, headers: sent, signal, cache: 'no-store',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw noted(new ApiError('The server cannot be reached. Is it running?', 0, 'unreachable'));
  }
  // Who has logged in since a request was sent is not asked again because of it.
  if (response.status === 401 && known === token) waiting.forEach((wake) => wake());
  if (!response.ok) throw noted(await refusal(response));
  return response;
}

function noted(error) {
  if (error.passing) untilBack();
  return error;
}

async function refusal(response) {
  const told = await response.json().catch(() => ({}));
  const { message, code } = told.error ?? {};
  return new ApiError(plainWords(code, message ?? `The server answered ${response.status}.`), response.status, code);
}

// A whole number that JavaScript would round stays as it was sent: what a person approves is what is called.
const LONG_NUMBER = /\d{16}/;
function exactly(_, value, { source }) {
  return typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? JSON.rawJSON(source) : value;
}

/** What a text in JSON says. */
export const parsed = (text) => JSON.parse(text, JSON.rawJSON && LONG_NUMBER.test(text) ? exactly : undefined);

async function call(method, address, options) {
  const response = await open(method, address, options);
  return response.status === 204 ? null : parsed(await response.text());
}

export const get = (address, options) => call('GET', address, options);
export const post = (address, body = {}, options = {}) => call('POST', address, { ...options, body });
export const put = (address, body) => call('PUT', address, { body });
export const del = (address) => call('DELETE', address);

/** Save what an address gives as a file. */
export async function download(address, name) {
  const blob = await (await open('GET', address)).blob();
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
