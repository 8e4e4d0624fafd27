// Heatmaps and state timelines. Grafana does not publish theirs, so these are ours:
// the axes are Grafana's, and what is in the plot follows its documentation.

import React, { useMemo } from 'react';
import { FieldType, formattedValueToString, getFieldDisplayName, getValueFormat } from '@grafana/data';
import { AxisPlacement, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder } from '@grafana/ui';
import * as schemes from 'd3-scale-chromatic';

import { mark } from './marks.js';

/** Draw each field of `frames` as a row of coloured periods. */
export function StateTimeline({ frames, options, width, height, ...context }) {
  const rows = frames.flatMap((frame) =>
    frame.fields
      .filter((field) => field.type !== FieldType.time)
      .map((field) => ({
        name: getFieldDisplayName(field, frame, frames),
        periods: states(frame, field, options.mergeValues),
        opacity: (field.config.custom?.fillOpacity ?? 70) / 100,
      }))
  );
  const shown = rows.slice(0, options.perPage || rows.length);
  const paged = rows.length > shown.length;
  const paint = ({ ctx, bbox, valToPos }) => {
    const line = bbox.height / shown.length;
    shown.forEach(({ periods, opacity }, index) => {
      const top = bbox.top + line * (index + (1 - options.rowHeight) / 2);
      ctx.globalAlpha = opacity;
      for (const { from, to, color } of periods) {
        const [left, right] = [from, to].map((at) => valToPos(at, 'x', true));
        ctx.fillStyle = color;
        ctx.fillRect(left, top, Math.max(1, right - left), line * options.rowHeight);
      }
    });
  };
  const axis = {
    splits: shown.map((_, index) => 1 - (index + 0.5) / shown.length),
    values: shown.map(({ name }) => name),
  };
  const footer = paged ? 32 : 0;
  return (
    <>
      <Canvas {...{ paint, axis, width, ...context }} height={height - footer} />
      {paged && (
        <div style={{ textAlign: 'center', lineHeight: `${footer}px` }}>
          1 of {Math.ceil(rows.length / shown.length)} pages
        </div>
      )}
    </>
  );
}

function states(frame, field, merge) {
  const time = frame.fields.find((one) => one.type === FieldType.time);
  const step = time.config.interval ?? 0;
  const found = [];
  time.values.forEach((at, index) => {
    const value = field.values[index];
    if (value == null || Number.isNaN(value)) {
      return;
    }
    const last = found.at(-1);
    const follows = last && at - last.at <= 1.5 * step;
    if (follows) {
      last.to = at;
    }
    if (follows && merge && last.value === value) {
      last.at = at;
      last.to = at + step;
    } else {
      found.push({ from: at, to: at + step, at, value, color: field.display(value).color });
    }
  });
  return found;
}

/** Draw a frame of buckets: darker where more values fell. */
export function Heatmap({ frames, options, width, height, theme, ...context }) {
  const [frame] = frames;
  const [time, ...buckets] = frame.fields;
  const counts = buckets.flatMap((bucket) => bucket.values);
  const least = options.filterValues?.le ?? 1e-9;
  const shown = counts.filter((count) => count > least);
  const [low, high] = [Math.min(...shown), Math.max(...shown)];
  const color = palette(options.color, theme);
  const gap = (options.cellGap ?? 1) * devicePixelRatio;
  const paint = ({ ctx, bbox, valToPos }) => {
    const line = bbox.height / buckets.length;
    buckets.forEach((bucket, row) => {
      const top = bbox.top + bbox.height - line * (row + 1);
      bucket.values.forEach((count, index) => {
        if (count <= least) {
          return;
        }
        const at = time.values[index];
        const [left, right] = [at - time.config.interval, at].map((one) => valToPos(one, 'x', true));
        ctx.fillStyle = color(high > low ? (count - low) / (high - low) : 1);
        ctx.fillRect(left, top, Math.max(1, right - left - gap), Math.max(1, line - gap));
      });
    });
  };
  const format = getValueFormat(options.yAxis?.unit ?? 'short');
  const bound = ({ labels, name }) => {
    const value = Number(labels?.le ?? name);
    return Number.isFinite(value) ? formattedValueToString(format(value)) : '+Inf';
  };
  // Bounds are at the upper edges of their rows, and as many as fit.
  const every = Math.ceil(buckets.length / Math.max(1, Math.floor(height / 24)));
  const labelled = buckets.map((_, row) => row).filter((row) => (buckets.length - 1 - row) % every === 0);
  const axis = {
    splits: labelled.map((row) => (row + 1) / buckets.length),
    values: labelled.map((row) => bound(buckets[row])),
  };
  return <Canvas {...{ paint, axis, width, height, theme, ...context }} />;
}

function palette({ scheme, steps, reverse }, theme) {
  const interpolate = schemes[`interpolate${scheme}`];
  // On a dark background few is dark, on a light one few is light.
  const inverted = theme.isDark !== Boolean(reverse);
  return (ratio) => {
    const step = Math.round(ratio * (steps - 1)) / (steps - 1);
    return interpolate(inverted ? 1 - step : step);
  };
}

function Canvas({ paint, axis, width, height, theme, timeZone, range, marks }) {
  const builder = useMemo(() => {
    const made = new UPlotConfigBuilder(timeZone);
    made.addScale({
      scaleKey: 'x',
      isTime: true,
      orientation: ScaleOrientation.Horizontal,
      direction: ScaleDirection.Right,
      range: () => [range.from.valueOf(), range.to.valueOf()],
    });
    made.addScale({
      scaleKey: 'y',
      orientation: ScaleOrientation.Vertical,
      direction: ScaleDirection.Up,
      range: () => [0, 1],
    });
    made.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone, theme });
    made.addAxis({
      scaleKey: 'y',
      placement: AxisPlacement.Left,
      splits: () => axis.splits,
      values: () => axis.values,
      grid: { show: false },
      ticks: { show: false },
      theme,
    });
    made.addHook('drawClear', (plot) => {
      plot.ctx.save();
      plot.ctx.beginPath();
      plot.ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
      plot.ctx.clip();
      paint({ ctx: plot.ctx, bbox: plot.bbox, valToPos: plot.valToPos.bind(plot) });
      plot.ctx.restore();
    });
    mark(made, marks, theme);
    return made;
  }, []);
  const data = [[range.from.valueOf(), range.to.valueOf()]];
  return <UPlotChart config={builder} data={data} width={width} height={height} />;
}
