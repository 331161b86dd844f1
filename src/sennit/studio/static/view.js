// The one place that knows which library draws the page: all views import from here.
import { Component, createRef, h, render } from './vendor/preact.mjs';
import htm from './vendor/htm.mjs';

export { Component, createRef, render };
// Effects run after a paint. What answers a person must be there before anyone can see it: a layout effect.
export {
  useEffect, useLayoutEffect, useMemo, useRef, useState,
} from './vendor/hooks.mjs';

export const html = htm.bind(h);

/** Class names that hold, joined. */
export const classes = (...names) => names.filter(Boolean).join(' ');
