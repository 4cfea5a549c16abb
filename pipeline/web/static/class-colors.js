// One color for each class of the model, in the order of its classes.

const COLORS = 6;

/** The CSS variable of a label's color; labels that are no class of the model are gray. */
export function colorOf(label, classes) {
  const place = classes.indexOf(label);
  return place < 0 ? "--undecided" : `--class-${place % COLORS}`;
}
