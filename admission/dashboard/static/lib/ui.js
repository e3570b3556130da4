// The rendering library, under one name, so that a newer one is exchanged in one place.
export { h, html, render, Component, createContext, useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState,
  useErrorBoundary } from "../vendor/htm-preact-3.1.1.js";
