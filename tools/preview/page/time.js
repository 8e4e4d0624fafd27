// The dashboard's time range, and the intervals that Grafana derives from it.

import { dateMath, dateTime, rangeUtil } from '@grafana/data';

// Prometheus returns at most 11,000 points for each series.
const MOST_POINTS = 11000;

/** Return Grafana's time range for `from` and `to`: `now-6h`, or milliseconds. */
export function timeRange(from, to) {
  const moment = (text, roundUp) =>
    /^\d+$/.test(text) ? dateTime(Number(text)) : dateMath.parse(text, roundUp);
  return { from: moment(from, false), to: moment(to, true), raw: { from, to } };
}

export class Intervals {
  /**
   * @param range the dashboard's time range
   * @param points as many as Grafana asks for at most: the panel's own limit, or its pixels
   * @param scrape the data source's scrape interval, such as 15s
   * @param minimum the panel's own least interval, if it has one
   */
  constructor(range, points, scrape, minimum) {
    const [from, to] = [range.from.valueOf(), range.to.valueOf()];
    const least = minimum || scrape;
    const wanted = rangeUtil.calculateInterval(range, points, least).intervalMs;
    const safe = rangeUtil.calculateInterval(range, MOST_POINTS).intervalMs;
    this.step = Math.max(wanted, safe);
    const scraped = rangeUtil.intervalToMs(least);
    this.rate = Math.max(this.step + scraped, 4 * scraped);
    // Grafana aligns both ends, so that points stay where they are on a refresh.
    this.start = Math.floor(from / this.step) * this.step;
    this.end = Math.floor(to / this.step) * this.step;
    this.range = Math.round((to - from) / 1000);
    this.now = to;
  }

  /** Return Grafana's own variables. */
  variables() {
    const text = (milliseconds) => rangeUtil.secondsToHms(milliseconds / 1000);
    return {
      __interval: text(this.step),
      __interval_ms: String(this.step),
      __rate_interval: text(this.rate),
      __range: `${this.range}s`,
      __range_s: String(this.range),
      __range_ms: String(this.range * 1000),
    };
  }
}
