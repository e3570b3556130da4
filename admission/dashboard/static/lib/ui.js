// Re-exports the rendering library (htm, preact), so that a new version is named in one place only.
export { h, html, render, Component, createContext, useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState,
  useErrorBoundary } from "../vendor/htm-preact-3.1.1.js";
