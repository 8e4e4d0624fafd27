// The page: reads a board and what is chosen from its own address, and draws it.
//
//   /?board=oncall&from=now-6h&to=now&theme=dark&var-job=web
//
// `window.preview` becomes a list with what was drawn in each panel, once all are.

import './page.css';

import React from 'react';
import { createRoot } from 'react-dom/client';
import { ThemeContext, createTheme } from '@grafana/data';
import { GlobalStyles } from '@grafana/ui';

import { Board, placed } from './board.jsx';
import { events } from './marks.js';
import { measured } from './report.js';
import { Intervals, timeRange } from './time.js';
import { Variables } from './variables.js';

const MARGIN = 16;

async function main() {
  const address = new URLSearchParams(location.search);
  const response = await fetch(`boards/${address.get('board')}.json`);
  const board = await response.json();
  const range = timeRange(
    address.get('from') ?? board.time.from,
    address.get('to') ?? board.time.to
  );
  const scrape = address.get('scrape') ?? '15s';
  const theme = createTheme({ colors: { mode: address.get('theme') ?? 'dark' } });
  const width = document.documentElement.clientWidth - 2 * MARGIN;
  const variables = new Variables(board.templating?.list ?? [], chosen(address), range);
  const intervals = new Intervals(range, width, scrape);
  await variables.resolve(intervals.variables());
  const marks = await events(board.annotations?.list ?? [], intervals, variables);
  const expand = address.get('expand') === 'all';
  const expected = placed(board.panels, expand).filter(({ panel }) => panel.type !== 'row');
  const results = [];
  const done = (result) => {
    results.push(result);
    if (results.length === expected.length) {
      settle().then(() => {
        window.preview = { panels: results.map(measured), variables: variables.texts, events: marks.length };
      });
    }
  };
  const context = { variables, range, scrape, theme, timeZone: address.get('timezone') ?? 'utc', marks, done };
  document.body.style.margin = `${MARGIN}px`;
  document.title = board.title;
  createRoot(document.getElementById('page')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Board {...{ board, width, expand, ...context }} />
    </ThemeContext.Provider>
  );
}

function chosen(address) {
  const names = [...address.keys()].filter((key) => key.startsWith('var-'));
  return Object.fromEntries(
    names.map((key) => [key.slice(4), address.getAll(key).map((one) => (one === 'All' ? '$__all' : one))])
  );
}

// Fonts change widths, and icons and canvases are drawn one frame later.
async function settle() {
  await document.fonts.ready;
  for (let frame = 0; frame < 4; frame++) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
}

main().catch((error) => {
  window.preview = { error: String(error) };
});
