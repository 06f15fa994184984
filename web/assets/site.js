/** What the pages of the site load: the elements that are not HTML's own, and marks. */

import "./exercise.js";
import "./explorer.js";
import "./solved.js";
