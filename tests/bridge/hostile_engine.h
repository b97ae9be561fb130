// The engine process of these tests, honest or not.
#pragma once

enum behaviour {
  HONEST,
  ALSO_HONEST,
  SPOILS_FRAMES,
  SENDS_NOISE,
  DIES,
  NEVER_READY,
  TAKES_NOTHING,
  LETS_GO,  // closes its socket, and continues
  LEAVES_A_CHILD,  // ends, and the child keeps the socket open
  BEHAVIOURS,
};

// Runs it on the socket that the bridge gave it. `life` says how it behaves.
int engine_main(unsigned long long life);
