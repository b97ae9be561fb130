import * as ask from "./ask.js";
import { watch } from "./watch.js";

ask.start();
watch();
