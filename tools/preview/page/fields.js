// Field options, overrides and transformations, applied by Grafana's own code.

import {
  FieldColorModeId,
  FieldConfigOptionsRegistry,
  FieldType,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  dataLinksOverrideProcessor,
  identityOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  thresholdsOverrideProcessor,
  transformDataFrame,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

const always = () => true;
const numbers = (field) => field.type === FieldType.number;

const STANDARD = [
  ['unit', identityOverrideProcessor, numbers],
  ['min', identityOverrideProcessor, numbers],
  ['max', identityOverrideProcessor, numbers],
  ['decimals', identityOverrideProcessor, numbers],
  ['displayName', identityOverrideProcessor, always],
  ['noValue', identityOverrideProcessor, always],
  ['color', identityOverrideProcessor, always],
  ['thresholds', thresholdsOverrideProcessor, numbers],
  ['mappings', valueMappingsOverrideProcessor, always],
  ['links', dataLinksOverrideProcessor, always],
];

// What each kind of panel declares for itself, with its defaults.
const CUSTOM = {
  timeseries: {
    axisBorderShow: false,
    axisCenteredZero: false,
    axisColorMode: 'text',
    axisGridShow: true,
    axisLabel: '',
    axisPlacement: 'auto',
    axisSoftMax: undefined,
    axisSoftMin: undefined,
    axisWidth: undefined,
    barAlignment: 0,
    barWidthFactor: 0.6,
    drawStyle: 'line',
    fillBelowTo: undefined,
    fillOpacity: 0,
    gradientMode: 'none',
    hideFrom: { viz: false, legend: false, tooltip: false },
    insertNulls: false,
    lineInterpolation: 'linear',
    lineStyle: undefined,
    lineWidth: 1,
    pointSize: 5,
    scaleDistribution: { type: 'linear' },
    showPoints: 'auto',
    spanNulls: false,
    stacking: { mode: 'none', group: 'A' },
    thresholdsStyle: { mode: 'off' },
    transform: undefined,
  },
  table: {
    align: 'auto',
    cellOptions: { type: 'auto' },
    filterable: false,
    hideFrom: undefined,
    inspect: false,
    minWidth: 50,
    width: undefined,
  },
  'state-timeline': { fillOpacity: 70, lineWidth: 0 },
};

standardTransformersRegistry.setInit(() =>
  // One of them is there twice, by an old name too.
  [...new Set(Object.values(standardTransformers))].map((transformer) => ({
    id: transformer.id,
    name: transformer.name,
    transformation: async () => transformer,
  }))
);

/** Return the frames of a panel, ready to be drawn. */
export async function prepared(panel, frames, { theme, timeZone, variables, interpolate }) {
  const fields = fieldConfig(panel);
  const transformed = panel.transformations?.length
    ? await firstValueFrom(transformDataFrame(panel.transformations, frames, { interpolate }))
    : frames;
  const data = applyFieldOverrides({
    data: transformed,
    fieldConfig: fields,
    fieldConfigRegistry: registry(panel.type),
    replaceVariables: (text) => variables.fill(text ?? ''),
    theme,
    timeZone,
  });
  // Tables read the names that this leaves in the fields.
  cacheFieldDisplayNames(data);
  return { data, fields };
}

/** Return the field options of a panel; Grafana stores the lowest threshold as null. */
export function fieldConfig(panel) {
  const found = structuredClone(panel.fieldConfig ?? { defaults: {}, overrides: [] });
  lowest(found.defaults.thresholds);
  for (const { properties } of found.overrides ?? []) {
    properties.filter(({ id }) => id === 'thresholds').forEach(({ value }) => lowest(value));
  }
  const declared = CUSTOM[panel.type] ?? {};
  found.defaults.custom = { ...declared, ...found.defaults.custom };
  found.defaults.color ??= { mode: FieldColorModeId.Thresholds };
  return found;
}

function lowest(thresholds) {
  for (const step of thresholds?.steps ?? []) {
    step.value ??= -Infinity;
  }
}

function registry(kind) {
  const made = new FieldConfigOptionsRegistry();
  for (const [path, process, shouldApply] of STANDARD) {
    made.register({ id: path, path, name: path, process, shouldApply, settings: {} });
  }
  for (const path of Object.keys(CUSTOM[kind] ?? {})) {
    made.register({
      id: `custom.${path}`,
      path,
      name: path,
      isCustom: true,
      process: identityOverrideProcessor,
      shouldApply: always,
      settings: {},
    });
  }
  return made;
}
