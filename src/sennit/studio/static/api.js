// The HTTP client of the page. Every response is JSON or an ApiError with a message for people; a 401 shows
// the login. While the server is unreachable it is polled with backoff; then `serverback` is dispatched, and
// views retry what they could not load.
import { inTab } from './kept.js';

const TOKEN_KEY = 'sennit.token';
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 8_000;
// Messages for error codes whose own text is about leases, ids and processes.
const MESSAGES = {
  busy: 'This branch is already answering in another window. Wait until it finishes.',
  elsewhere: 'Another process is producing this answer; it can only be stopped there.',
  moved: 'Someone else added a message here in the meantime.',
  nothing_to_resume: 'There is nothing to resume: the answer is complete.',
  not_found: 'Not found; it may have been deleted.',
  lost_lease: 'Another process took over this conversation.',
};
const waiting = new Set();
let lost = false;
let wait = MIN_BACKOFF_MS;
let back = 0;  // when the server answered again
let token = inTab.get(TOKEN_KEY);

class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether a retry may help: the server is unreachable, starting or shutting down. */
  get passing() { return this.status === 0 || (this.status >= 502 && this.status <= 504); }
}

/** Return the message for an error code, or `text`. */
export const plainWords = (code, text) => MESSAGES[code] ?? text;

/** Call `again` when the server is reachable again; with `failed`, at once if it already is. */
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
  if (Date.now() - back > 2 * MAX_BACKOFF_MS) wait = MIN_BACKOFF_MS;  // else it is overloaded: keep the backoff
  for (; lost; wait = Math.min(wait * 2, MAX_BACKOFF_MS)) {
    await pause(wait);
    lost = !await fetch('/api/ready', { cache: 'no-store' }).then(({ ok }) => ok, () => false);
  }
  back = Date.now();
  dispatchEvent(new Event('serverback'));
}

/** Wait for a timeout, for the network or the server to return, or for `signal` to be aborted. */
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

/** Call `wake` whenever the server answers 401. */
export function onLogin(wake) {
  waiting.add(wake);
  return () => waiting.delete(wake);
}

/** Set the token; it is stored until this tab is closed. */
export function login(value) {
  token = value;
  if (value) inTab.set(TOKEN_KEY, value);
  else inTab.remove(TOKEN_KEY);
}

/** Build a path under /api; each part is URL-encoded. */
export function path(...parts) {
  return '/api/' + parts.map(encodeURIComponent).join('/');
}

/** Build a query string from the values that are set. */
export function query(params) {
  const set = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return set.length ? '?' + new URLSearchParams(set) : '';
}

/** Send a request; return the response, or throw an ApiError. */
export async function open(method, address, { body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  const sentToken = token;
  if (sentToken) sent.Authorization = `Bearer ${sentToken}`;
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
  // Ignore a 401 for an old token: the user has logged in since.
  if (response.status === 401 && sentToken === token) waiting.forEach((wake) => wake());
  if (!response.ok) throw noted(await refusal(response));
  return response;
}

function noted(error) {
  if (error.passing) untilBack();
  return error;
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  const { message, code } = body.error ?? {};
  return new ApiError(plainWords(code, message ?? `The server answered ${response.status}.`), response.status, code);
}

// Integers that JavaScript would round keep their digits: a person approves exactly what is called.
const LONG_NUMBER = /\d{16}/;
function exactly(_, value, { source }) {
  return typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? JSON.rawJSON(source) : value;
}

/** Parse JSON without rounding large integers. */
export const parsed = (text) => JSON.parse(text, JSON.rawJSON && LONG_NUMBER.test(text) ? exactly : undefined);

async function call(method, address, options) {
  const response = await open(method, address, options);
  return response.status === 204 ? null : parsed(await response.text());
}

export const get = (address, options) => call('GET', address, options);
export const post = (address, body = {}, options = {}) => call('POST', address, { ...options, body });
export const put = (address, body) => call('PUT', address, { body });
export const del = (address) => call('DELETE', address);

/** Download a response as a file. */
export async function download(address, name) {
  const blob = await (await open('GET', address)).blob();
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
