// The page that `regard explore` serves: the explorer, asking over HTTP.

import { Explorer } from "./explorer.js";
import { HttpSource } from "./source.js";

new Explorer(document.getElementById("explorer"), new HttpSource(), { linked: true }).start();
