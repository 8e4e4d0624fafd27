// One panel: Grafana's frame around it, and what is in it.

import React, { useEffect, useState } from 'react';
import { getDisplayValueAlignmentFactors, getFieldDisplayValues } from '@grafana/data';
import { BigValue, Icon, PanelChrome, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

import { Heatmap, StateTimeline } from './canvas.jsx';
import { prepared } from './fields.js';
import { query } from './frames.js';
import { mark } from './marks.js';
import { Intervals } from './time.js';

/** Draw a panel; `done` is called once with what became of it. */
export function Panel({ panel, width, height, ...context }) {
  const { variables } = context;
  const links = panel.links ?? [];
  return (
    <PanelChrome
      title={variables.label(panel.title)}
      description={panel.description}
      displayMode={panel.transparent ? 'transparent' : 'default'}
      titleItems={links.length > 0 && <Icon name="external-link-alt" title={`${links.length} links`} />}
      width={width}
      height={height}
    >
      {(innerWidth, innerHeight) => (
        <Content {...{ panel, ...context }} width={innerWidth} height={innerHeight} />
      )}
    </PanelChrome>
  );
}

function Content({ panel, width, height, done, ...context }) {
  const [state, setState] = useState(null);
  useEffect(() => {
    load(panel, width, context).then(setState, (error) => setState({ error }));
  }, []);
  useEffect(() => {
    if (state) {
      done({ panel, ...state });
    }
  }, [state]);
  if (!state) {
    return null;
  }
  if (state.error) {
    return <Message text={`error: ${state.error.message}`} />;
  }
  const Drawn = KINDS[panel.type];
  const drawn = { ...state, ...context, panel, options: panel.options, width, height };
  return Drawn ? <Drawn {...drawn} /> : <Message text={`error: no ${panel.type} here`} />;
}

async function load(panel, width, context) {
  const intervals = new Intervals(context.range, panel.maxDataPoints ?? width, context.scrape, panel.interval);
  const found = await query(panel, intervals, context.variables);
  const interpolate = (text) => context.variables.fill(text, intervals.variables());
  const { data, fields } = await prepared(panel, found.frames, { ...context, interpolate });
  return { ...found, frames: data, fields };
}

function Message({ text }) {
  return (
    <div className="preview-message">
      <span>{text}</span>
    </div>
  );
}

function NoData({ fields }) {
  return <Message text={fields.defaults.noValue ?? 'No data'} />;
}

const hasRows = (frames) => frames.some((frame) => frame.length > 0);

function Lines({ frames, fields, options, width, height, theme, timeZone, range, marks }) {
  if (!hasRows(frames)) {
    return <NoData fields={fields} />;
  }
  return (
    <TimeSeries
      {...{ frames, width, height, timeZone, theme }}
      structureRev={1}
      timeRange={range}
      legend={options.legend}
      options={options}
    >
      {(builder) => {
        mark(builder, marks, theme);
        return null;
      }}
    </TimeSeries>
  );
}

function Stat({ frames, fields, options, width, height, theme, timeZone, variables }) {
  const values = () =>
    getFieldDisplayValues({
      fieldConfig: fields,
      reduceOptions: options.reduceOptions,
      replaceVariables: (text) => variables.fill(text),
      theme,
      data: frames,
      sparkline: options.graphMode !== 'none',
      timeZone,
    });
  return (
    <VizRepeater
      {...{ width, height, theme }}
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      source={frames}
      renderCounter={0}
      orientation={options.orientation}
      itemSpacing={3}
      renderValue={({ value, width: wide, height: high, alignmentFactors, count }) => (
        <BigValue
          value={value.display}
          sparkline={value.sparkline}
          width={wide}
          height={high}
          count={count}
          alignmentFactors={alignmentFactors}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          text={options.text}
          disableWideLayout={!options.wideLayout}
          theme={theme}
        />
      )}
    />
  );
}

function TableOf({ frames, fields, options, width, height, range }) {
  if (!frames.some((frame) => frame.fields.length > 0)) {
    return <NoData fields={fields} />;
  }
  return (
    <TableNG
      {...{ width, height }}
      data={frames[options.frameIndex ?? 0]}
      noHeader={!options.showHeader}
      showTypeIcons={options.showTypeIcons}
      sortBy={options.sortBy}
      cellHeight={options.cellHeight}
      timeRange={range}
      fieldConfig={fields}
      noValue={fields.defaults.noValue}
      enableVirtualization={false}
    />
  );
}

function orNoData(Drawn) {
  return (properties) =>
    hasRows(properties.frames) ? <Drawn {...properties} /> : <NoData fields={properties.fields} />;
}

const KINDS = {
  heatmap: orNoData(Heatmap),
  stat: Stat,
  'state-timeline': orNoData(StateTimeline),
  table: TableOf,
  timeseries: Lines,
};
