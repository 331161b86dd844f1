// The rendering library (preact and htm); all views import it from here.
import { Component, createRef, h, render } from './vendor/preact.mjs';
import htm from './vendor/htm.mjs';

export { Component, createRef, render };
// Effects run after paint. Input handlers must be attached before that: use a layout effect.
export {
  useEffect, useLayoutEffect, useMemo, useRef, useState,
} from './vendor/hooks.mjs';

export const html = htm.bind(h);

/** Join the class names that are truthy. */
export const classes = (...names) => names.filter(Boolean).join(' ');
