// What a panel shows, and what of it a reader cannot see.

/** Return what became of a panel, measured in the page. */
export function measured({ panel, error, frames = [], series = 0, bytes = 0, warnings = [] }) {
  const element = document.querySelector(`[data-panel="${panel.id}"]`);
  const rows = frames.reduce((sum, frame) => sum + frame.length, 0);
  return {
    id: panel.id,
    title: panel.title,
    kind: panel.type,
    state: error ? 'error' : rows ? 'data' : 'empty',
    text: error || !rows || panel.type === 'stat' ? content(element) : '',
    series,
    rows,
    bytes,
    warnings,
    cut: [...new Set([...element.querySelectorAll('*')].filter(isCut).map((one) => one.textContent))],
    hidden: hiddenRows(element),
  };
}

function content(element) {
  const [body] = element.querySelectorAll('[data-testid="data-testid panel content"], .preview-message');
  return (element.querySelector('.preview-message') ?? body)?.textContent ?? '';
}

function isCut(element) {
  return (
    element.textContent !== '' &&
    element.scrollWidth > element.clientWidth &&
    getComputedStyle(element).textOverflow === 'ellipsis'
  );
}

/** Return how many rows of a legend or a table one must scroll to see. */
function hiddenRows(element) {
  const found = [...element.querySelectorAll('tbody tr, [role="row"]')];
  return found.filter((row) => row.getBoundingClientRect().bottom > visibleBottom(row, element) + 2)
    .length;
}

function visibleBottom(row, element) {
  let bottom = element.getBoundingClientRect().bottom;
  for (let one = row.parentElement; one && one !== element; one = one.parentElement) {
    if (getComputedStyle(one).overflowY !== 'visible') {
      bottom = Math.min(bottom, one.getBoundingClientRect().bottom);
    }
  }
  return bottom;
}
