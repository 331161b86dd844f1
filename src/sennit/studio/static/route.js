// Hash-based routing, so that every view, branch and message has a link and the back button works.
import { useEffect, useLayoutEffect, useState } from './view.js';

const PAGES = new Set(['memory', 'usage']);
const VIEWS = new Set(['chat', 'tree', 'compare']);

/** Parse `#/s/{session}/{branch}/{view}?m=…`. */
export function parsed(hash) {
  const [place, asked = ''] = hash.replace(/^#\/?/, '').split('?');
  const params = Object.fromEntries(new URLSearchParams(asked));
  const [page, session, branch, view] = place.split('/').map(part);
  if (page === 's' && session) {
    return { page: 'session', session, branch: branch || null, view: VIEWS.has(view) ? view : 'chat', params };
  }
  return { page: PAGES.has(page) ? page : 'home', params };
}

function part(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function address(parts, params = {}) {
  const set = Object.entries(params).filter(([, value]) => value !== undefined && value !== null);
  const asked = set.length ? `?${new URLSearchParams(set)}` : '';
  return '#/' + parts.map(encodeURIComponent).join('/') + asked;
}

export const pageLink = (page, params) => address([page], params);

export function sessionLink(session, branch = null, { view = 'chat', ...params } = {}) {
  const parts = ['s', session];
  if (branch) parts.push(branch);
  if (branch && view !== 'chat') parts.push(view);
  return address(parts, params);
}

export function go(link, { replace = false } = {}) {
  if (!replace) location.hash = link;
  else {
    history.replaceState(null, '', link);
    dispatchEvent(new HashChangeEvent('hashchange'));
  }
}

/** Set the document title while a view is mounted. */
export function useTitle(words) {
  useEffect(() => {
    document.title = words ? `${words} · Sennit` : 'Sennit';
    return () => { document.title = 'Sennit'; };
  }, [words]);
}

export function useRoute() {
  const [route, setRoute] = useState(() => parsed(location.hash));
  useLayoutEffect(() => {
    const moved = () => setRoute(parsed(location.hash));
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  return route;
}
