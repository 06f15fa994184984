/** What the pages of the site load: the elements that are not HTML's own. */

import "./exercise.js";
import "./explorer.js";
