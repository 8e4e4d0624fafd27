// Dashboard variables: what they find, what is chosen, and how they are filled in.

import { ask, labelValues } from './prometheus.js';

const REFERENCE = /\$(\w+)|\$\{(\w+)(?::(\w+))?\}/g;
const ALL = '$__all';

export class Variables {
  /** @param chosen values by the name of the variable, as in the page's address */
  constructor(declared, chosen, range) {
    this.declared = declared;
    this.range = range;
    this.values = {};
    this.plain = {};
    this.texts = {};
    this.options = {};
    this.chosen = chosen;
  }

  /** Find the values of all variables; each may use those before it. */
  async resolve(own) {
    for (const one of this.declared) {
      const found = await this.found(one, own);
      this.options[one.name] = found;
      const chosen = this.chosen[one.name] ?? initial(one, found);
      const all = chosen.includes(ALL);
      const values = all ? found : chosen;
      const whole = all && one.allValue;
      this.values[one.name] = whole ? one.allValue : pattern(one, values);
      this.plain[one.name] = whole ? one.allValue : values.join('|');
      this.texts[one.name] = all ? 'All' : chosen.join(' + ');
    }
  }

  async found(one, own) {
    switch (one.type) {
      case 'datasource':
        return ['Prometheus'];
      case 'query':
        return this.queried(one, own);
      case 'custom':
      case 'interval':
        return String(one.query).split(',').map((value) => value.trim().split(' : ').at(-1));
      default:
        return [String(one.query ?? '')];
    }
  }

  async queried(one, own) {
    const text = this.fill(one.query.query ?? one.query, own);
    const [, match, label] = /^label_values\((?:(.*),\s*)?(\w+)\)$/s.exec(text) ?? [];
    if (label) {
      return narrowed(await labelValues(label, match, this.range), one.regex);
    }
    const [, expression] = /^query_result\((.*)\)$/s.exec(text) ?? [];
    if (!expression) {
      throw new Error(`variable ${one.name}: cannot read ${text}`);
    }
    const { data } = await ask('query', {
      query: expression,
      time: this.range.to.valueOf() / 1000,
    });
    return narrowed(data.result.map(sample), one.regex);
  }

  /** Return `text` with the variables in it replaced; those of `own` come first. */
  fill(text, own = {}) {
    return text.replace(REFERENCE, (whole, plain, braced, format) => {
      const name = plain ?? braced;
      if (name in own) {
        return own[name];
      }
      if (!(name in this.values)) {
        return whole;
      }
      const formats = { text: this.texts, pipe: this.plain };
      return (formats[format] ?? this.values)[name];
    });
  }

  /** Return `text` as people read it: with the texts of variables. */
  label(text) {
    return text.replace(REFERENCE, (whole, plain, braced) => this.texts[plain ?? braced] ?? whole);
  }
}

function initial(one, found) {
  const current = one.current?.value;
  if (current !== undefined && String(current) !== '') {
    return [current].flat();
  }
  return one.includeAll ? [ALL] : found.slice(0, 1);
}

// A Prometheus data source escapes values once for the regular expression and once
// for the quoted string, unless a variable has only one value and no "All".
function pattern(one, values) {
  if (!one.multi && !one.includeAll) {
    return values[0] ?? '';
  }
  const escaped = values.map((value) =>
    value.replace(/\\/g, '\\\\\\\\').replace(/[$^*{}[\]+?.()|]/g, '\\\\$&')
  );
  return escaped.length === 1 ? escaped[0] : `(${escaped.join('|')})`;
}

function sample({ metric, value }) {
  const { __name__: name = '', ...labels } = metric;
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
  return `${name}{${pairs.join(',')}} ${value[1]} ${value[0] * 1000}`;
}

function narrowed(values, regex) {
  if (!regex) {
    return [...new Set(values)].sort();
  }
  const [, source, flags] = /^\/(.*)\/(\w*)$/s.exec(regex) ?? [null, regex, ''];
  const expression = new RegExp(source, flags.replace('g', ''));
  const found = values.map((value) => expression.exec(value)).filter(Boolean);
  return [...new Set(found.map((match) => match[1] ?? match[0]))].sort();
}
