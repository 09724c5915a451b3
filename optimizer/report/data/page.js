"use strict";
// Sorts a table by the column whose heading is pressed; what is empty stays last both ways.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const numeric = heading.classList.contains("number");
    const key = (row) => {
      const cell = row.cells[column];
      return numeric ? cell.dataset.value : cell.textContent.trim();
    };
    const rows = [...body.rows].map((row, index) => ({ row, index, key: key(row) }));
    rows.sort((a, b) => {
      if (a.key === "" || b.key === "") return (a.key === "") - (b.key === "") || a.index - b.index;
      const order = numeric ? Number(a.key) - Number(b.key) : a.key.localeCompare(b.key);
      return (down ? -order : order) || a.index - b.index;
    });
    for (const { row } of rows) body.append(row);
  });
}
