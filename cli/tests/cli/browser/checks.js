const describe = element => `<${element.tagName}> ${element.textContent.trim().slice(0, 60)}`;
const isShown = element => element.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true });
const TOLERANCE = 1;

/** Elements with text of their own that do not fit the width of the page, or the element that cuts them. */
function clipped() {
  const problems = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    problems.push(`the page is ${document.documentElement.scrollWidth} px wide, not ${width}`);
  }
  for (const element of document.querySelectorAll('h1, h2, h3, p, li, th, td, td span, summary, pre')) {
    // Rows that are lists have no headings.
    if (!isShown(element)) continue;
    const { left, right } = element.getBoundingClientRect();
    const isCut = element.scrollWidth > element.clientWidth + TOLERANCE && getComputedStyle(element).display != 'inline';
    if (left < -TOLERANCE || right > width + TOLERANCE || isCut) problems.push(`clipped: ${describe(element)}`);
  }
  return problems;
}

/** Text of pictures that is cut, smaller than a number of pixels, or over other text. */
function unreadablePictures(smallest) {
  const problems = [];
  for (const svg of document.querySelectorAll('svg')) {
    if (!isShown(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const seen = [];
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      const size = parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a;
      const isInside = box.left >= frame.left - TOLERANCE && box.right <= frame.right + TOLERANCE
        && box.top >= frame.top - TOLERANCE && box.bottom <= frame.bottom + TOLERANCE;
      if (!isInside) problems.push(`outside of its picture: ${describe(text)}`);
      if (size < smallest) problems.push(`${size.toFixed(1)} px: ${describe(text)}`);
      // Boxes have the height of the line, which is larger than the letters.
      const rise = box.height / 5;
      const over = seen.find(other => box.left + 1 < other.box.right && other.box.left + 1 < box.right
        && box.top + rise < other.box.bottom - rise && other.box.top + rise < box.bottom - rise);
      if (over) problems.push(`${describe(text)} over ${describe(over.text)}`);
      seen.push({ box, text });
    }
  }
  return problems;
}

/** Columns without a heading in sight, and details that stay folded. */
function missingOnPaper() {
  const problems = [];
  for (const row of document.querySelectorAll('tbody tr')) {
    const columns = row.closest('table').querySelectorAll('th');
    for (const [index, cell] of [...row.children].entries()) {
      if (!isShown(cell)) problems.push(`no cell: ${describe(cell)}`);
      const [heading, value] = [columns[index].getBoundingClientRect(), cell.getBoundingClientRect()];
      if (heading.width == 0 || Math.abs(heading.left - value.left) > TOLERANCE) problems.push(`no heading: ${describe(cell)}`);
    }
  }
  for (const element of document.querySelectorAll('details > *')) {
    const isFolded = !isShown(element) || element.getBoundingClientRect().height == 0;
    if (isFolded) problems.push(`folded: ${describe(element)}`);
  }
  return problems;
}

const channels = color => color.match(/[\d.]+/g).slice(0, 3).map(Number);
const luminance = color => channels(color).map(value => value / 255)
  .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);

/** Text with less contrast than WCAG's level AA, 4.5 to 1. */
function faint() {
  const problems = [];
  for (const element of document.querySelectorAll('h1, p, p *, li, li *, td span, th, summary, pre, text')) {
    if (!isShown(element)) continue;
    const svg = element.closest('svg');
    const color = svg ? getComputedStyle(element).fill : getComputedStyle(element).color;
    const ground = svg ? getComputedStyle(svg.querySelector('.ground')).fill : getComputedStyle(document.body).backgroundColor;
    const [dark, light] = [luminance(color), luminance(ground)].sort((a, b) => a - b);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < 4.5) problems.push(`contrast ${contrast.toFixed(1)}: ${describe(element)}`);
  }
  return problems;
}

/** Luminance of the page's ground, from 0 to 1. */
function groundLuminance() {
  const ground = document.querySelector('.ground');
  return luminance(document.body ? getComputedStyle(document.body).backgroundColor : getComputedStyle(ground).fill);
}
