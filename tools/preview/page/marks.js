// Annotations: moments and periods, drawn over what happens over time.

import { ask } from './prometheus.js';

/** Return the events of the enabled annotations that are queries. */
export async function events(annotations, intervals, variables) {
  const enabled = annotations.filter((one) => one.enable && one.expr && !one.hide);
  const found = await Promise.all(
    enabled.map((one) => eventsOf(one, intervals, variables))
  );
  return found.flat();
}

async function eventsOf(annotation, intervals, variables) {
  const step = seconds(annotation.step) || 60;
  const { data } = await ask('query_range', {
    query: variables.fill(annotation.expr, intervals.variables()),
    start: Math.floor(intervals.start / 1000 / step) * step,
    end: Math.floor(intervals.end / 1000 / step) * step,
    step,
  });
  return data.result.flatMap(({ metric, values }) => {
    const times = values.filter(([, value]) => Number(value) > 0).map(([at]) => at);
    const title = (annotation.titleFormat ?? '').replace(
      /\{\{\s*(.+?)\s*\}\}/g,
      (_, label) => metric[label] ?? ''
    );
    return periods(times, step).map(([first, last]) => ({
      from: first * 1000,
      to: last * 1000,
      color: annotation.iconColor,
      title,
    }));
  });
}

function periods(times, step) {
  const found = [];
  for (const at of times) {
    const last = found.at(-1);
    if (last && at - last[1] <= step) {
      last[1] = at;
    } else {
      found.push([at, at]);
    }
  }
  return found;
}

function seconds(text) {
  const [, number, unit] = /^(\d+)([smh]?)$/.exec(text ?? '') ?? [];
  return Number(number) * { s: 1, m: 60, h: 3600, '': 1 }[unit ?? ''] || 0;
}

const marked = new WeakSet();

/** Draw `found` on the plot that `builder` describes. */
export function mark(builder, found, theme) {
  if (marked.has(builder)) {
    return;
  }
  marked.add(builder);
  builder.addHook('draw', (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height + 6 * devicePixelRatio);
    ctx.clip();
    for (const { from, to, color } of found) {
      const [left, right] = [from, to].map((at) => plot.valToPos(at, 'x', true));
      ctx.fillStyle = ctx.strokeStyle = theme.visualization.getColorByName(color);
      if (right > left) {
        ctx.globalAlpha = 0.1;
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
        ctx.globalAlpha = 1;
        ctx.fillRect(left, bbox.top + bbox.height, right - left, 5 * devicePixelRatio);
      }
      ctx.setLineDash([5, 5]);
      ctx.beginPath();
      for (const at of new Set([left, right])) {
        ctx.moveTo(at, bbox.top);
        ctx.lineTo(at, bbox.top + bbox.height);
      }
      ctx.stroke();
    }
    ctx.restore();
  });
}
