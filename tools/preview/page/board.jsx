// A board: its variables, its rows, and its panels where Grafana's grid puts them.

import React from 'react';
import { Icon } from '@grafana/ui';

import { Panel } from './panel.jsx';

const COLUMNS = 24;
const ROW = 30;
const GAP = 8;
// Below that, Grafana stacks panels.
const NARROW = 769;

/** Return panels and headings in order; the panels of collapsed rows only if `expand`. */
export function placed(panels, expand) {
  const found = [];
  let added = 0;
  for (const panel of panels) {
    const inner = panel.type === 'row' && panel.collapsed ? (panel.panels ?? []) : [];
    const open = panel.type !== 'row' || !panel.collapsed || expand;
    found.push({ panel, y: panel.gridPos.y + added, open, hidden: inner.length });
    if (inner.length && expand) {
      found.push(...inner.map((one) => ({ panel: one, y: one.gridPos.y + added, open })));
      const bottom = Math.max(...inner.map(({ gridPos }) => gridPos.y + gridPos.h));
      added += bottom - (panel.gridPos.y + panel.gridPos.h);
    }
  }
  return found;
}

/** Return panels one below the other, each as wide as the grid. */
export function stacked(all) {
  let y = 0;
  return all.toSorted((a, b) => a.y - b.y || a.panel.gridPos.x - b.panel.gridPos.x).map((one) => {
    const gridPos = { ...one.panel.gridPos, x: 0, w: COLUMNS };
    const found = { ...one, panel: { ...one.panel, gridPos }, y };
    y += gridPos.h;
    return found;
  });
}

/** Draw a board, `width` pixels wide. */
export function Board({ board, width, expand, ...context }) {
  const column = (width - GAP * (COLUMNS - 1)) / COLUMNS;
  const wide = placed(board.panels, expand);
  const all = width < NARROW ? stacked(wide) : wide;
  const bottom = Math.max(...all.map(({ panel, y }) => y + panel.gridPos.h));
  return (
    <>
      <Header {...{ board, ...context }} />
      <div style={{ position: 'relative', width, height: bottom * (ROW + GAP) }}>
        {all.map(({ panel, y, open, hidden }) => {
          const { x, w, h } = panel.gridPos;
          const place = {
            width: Math.round(column * w + GAP * (w - 1)),
            height: Math.round(ROW * h + GAP * (h - 1)),
          };
          const left = Math.round((column + GAP) * x);
          const top = Math.round((ROW + GAP) * y);
          return (
            <div
              key={panel.id}
              data-panel={panel.id}
              style={{ position: 'absolute', left, top, ...place }}
            >
              {panel.type === 'row' ? (
                <Heading {...{ panel, open, hidden, ...context }} />
              ) : (
                <Panel {...{ panel, ...place, ...context }} />
              )}
            </div>
          );
        })}
      </div>
    </>
  );
}

function Heading({ panel, open, hidden, variables }) {
  return (
    <div className="preview-row">
      <Icon name={open ? 'angle-down' : 'angle-right'} />
      <h2>{variables.label(panel.title)}</h2>
      {hidden > 0 && !open && <span>({hidden} panels)</span>}
    </div>
  );
}

function Header({ board, variables, range }) {
  const shown = (board.templating?.list ?? []).filter((one) => one.hide !== 2);
  return (
    <>
      <div className="preview-title">
        <h1>{board.title}</h1>
        <span>
          {range.raw.from} to {range.raw.to}
        </span>
      </div>
      <div className="preview-variables">
        {shown.map((one) => (
          <span key={one.name} data-variable={one.name}>
            <b>{one.label || one.name}</b>
            <i>{variables.texts[one.name]}</i>
          </span>
        ))}
        {(board.annotations?.list ?? [])
          .filter((one) => !one.hide && one.expr)
          .map((one) => (
            <span key={one.name}>
              <b>{one.name}</b>
              <i>{one.enable ? 'on' : 'off'}</i>
            </span>
          ))}
      </div>
    </>
  );
}
