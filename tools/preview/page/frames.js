// Data frames, made of what Prometheus returns as Grafana's data source makes them.

import { FieldType, createDataFrame } from '@grafana/data';

import { ask } from './prometheus.js';

/** Return the frames of all queries of a panel, with warnings and sizes. */
export async function query(panel, intervals, variables) {
  const own = intervals.variables();
  const targets = (panel.targets ?? []).filter((target) => !target.hide && target.expr);
  const answers = await Promise.all(
    targets.map((target) => answer(target, intervals, variables.fill(target.expr, own)))
  );
  const tables = targets.filter((target) => target.format === 'table').length;
  const frames = answers.flatMap(({ target, series }) => {
    switch (target.format) {
      case 'table':
        return [table(target, series, tables > 1 ? `Value #${target.refId}` : 'Value')];
      case 'heatmap':
        return heatmap(target, series, intervals);
      default:
        return series.map((one) => lines(target, one, intervals));
    }
  });
  return {
    frames,
    warnings: answers.flatMap((one) => one.warnings),
    series: answers.reduce((sum, one) => sum + one.series.length, 0),
    bytes: answers.reduce((sum, one) => sum + one.bytes, 0),
  };
}

async function answer(target, intervals, expression) {
  const { data, warnings, bytes } = target.instant
    ? await ask('query', { query: expression, time: intervals.now / 1000 })
    : await ask('query_range', {
        query: expression,
        start: intervals.start / 1000,
        end: intervals.end / 1000,
        step: intervals.step / 1000,
      });
  const found = data.resultType === 'scalar' ? [{ metric: {}, value: data.result }] : data.result;
  const series = found.map((one) => {
    const samples = one.values ?? [one.value];
    return {
      labels: one.metric,
      name: legend(target, one.metric, expression),
      times: samples.map(([at]) => at * 1000),
      values: samples.map(([, text]) => number(text)),
    };
  });
  return { target, series, warnings, bytes };
}

function number(text) {
  return text.endsWith('Inf') ? (text.startsWith('-') ? -Infinity : Infinity) : Number(text);
}

function legend(target, labels, expression) {
  if (target.legendFormat && target.legendFormat !== '__auto') {
    return target.legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');
  }
  const { __name__: name = '', ...others } = labels;
  const pairs = Object.entries(others).map(([label, text]) => `${label}="${text}"`);
  const full = pairs.length ? `${name}{${pairs.sort().join(', ')}}` : name;
  return full || expression;
}

function lines(target, series, intervals) {
  return createDataFrame({
    refId: target.refId,
    fields: [
      {
        name: 'Time',
        type: FieldType.time,
        values: series.times,
        config: { interval: intervals.step },
      },
      {
        name: 'Value',
        type: FieldType.number,
        values: series.values,
        labels: series.labels,
        config: { displayNameFromDS: series.name },
      },
    ],
  });
}

function table(target, series, value) {
  const labels = new Set(series.flatMap((one) => Object.keys(one.labels).sort()));
  const column = (read) => series.flatMap((one) => one.values.map((_, index) => read(one, index)));
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: column((one, index) => one.times[index]) },
      ...[...labels].map((label) => ({
        name: label,
        type: FieldType.string,
        values: column((one) => one.labels[label] ?? ''),
      })),
      { name: value, type: FieldType.number, values: column((one, index) => one.values[index]) },
    ],
  });
}

// Buckets are cumulative: each contains those below it.
function heatmap(target, series, intervals) {
  if (!series.length) {
    return [];
  }
  const bound = (one) => number(one.labels.le ?? '');
  const sorted = [...series].sort((one, other) => bound(one) - bound(other));
  const times = [...new Set(sorted.flatMap((one) => one.times))].sort((a, b) => a - b);
  let below = times.map(() => 0);
  const buckets = sorted.map((one) => {
    const at = new Map(one.times.map((time, index) => [time, one.values[index]]));
    const total = times.map((time) => at.get(time) ?? 0);
    const values = total.map((value, index) => Math.max(0, value - below[index]));
    below = total;
    return { name: one.labels.le ?? one.name, type: FieldType.number, values, labels: one.labels };
  });
  const time = {
    name: 'Time',
    type: FieldType.time,
    values: times,
    config: { interval: intervals.step },
  };
  return [createDataFrame({ refId: target.refId, fields: [time, ...buckets] })];
}
