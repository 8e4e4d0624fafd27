// Requests to Prometheus, through the server of this page.

/** Prometheus rejected a query, or cannot be reached. */
export class QueryError extends Error {}

/**
 * Return the data of a response, its warnings and its size.
 *
 * As Grafana does, asks by POST, since expressions may be long.
 */
export async function ask(path, parameters) {
  const response = await fetch(`api/v1/${path}`, {
    method: 'POST',
    body: new URLSearchParams(parameters),
  });
  return read(response);
}

/** Return the values of a label of the series that `match` selects. */
export async function labelValues(label, match, range) {
  const parameters = new URLSearchParams({
    start: range.from.valueOf() / 1000,
    end: range.to.valueOf() / 1000,
  });
  if (match) {
    parameters.set('match[]', match);
  }
  const url = `api/v1/label/${encodeURIComponent(label)}/values?${parameters}`;
  return (await read(await fetch(url))).data;
}

async function read(response) {
  const text = await response.text();
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new QueryError(`status ${response.status}: ${text.slice(0, 200)}`);
  }
  if (found.status !== 'success') {
    throw new QueryError(found.error);
  }
  return {
    data: found.data,
    warnings: [...(found.warnings ?? []), ...(found.infos ?? [])],
    bytes: text.length,
  };
}
