// Written by `make docs` from Python modules: do not edit.
#pragma once
#define PROTOCOL_VERSION 4
#define ERROR_FINISH 255
#define TEXT_FINISH 128
#define CACHED_TOKENS 1
#define LOG_PROBS 2
#define NOT_FINISHED 0
#define CANCELLED 5
#define STATISTICS_COUNT 4
#define LARGEST_REQUEST 67108864
#define FRAME_REQUEST 1
#define FRAME_CANCEL 2
#define FRAME_SHUTDOWN 3
#define FRAME_READY 64
#define FRAME_START_FAILED 65
#define FRAME_STEP 66
#define FRAME_STATISTICS 67
#define FEED_REQUEST 1
#define FEED_CANCEL 2
#define FEED_CANCEL_GROUP 3
#define FEED_OPENED 128
#define FEED_ENGINE 129
#define FEED_STEP 130
#define FEED_STATISTICS 131
#define INTERFACE_TOKENS 0
#define INTERFACE_TEXT 1
#define INTERFACE_VLLM 2
#define STATE_STARTING 0
#define STATE_READY 1
#define STATE_RESTARTING 2
#define STATE_GIVEN_UP 3
#define FEED_PARAMETER "feed"
#define GROUP_PARAMETER "runner_group"
#define PARAMETER_PREFIX "parameter:"
#define E2105_TRITON_UNAVAILABLE "E2105 TritonUnavailable: Triton is unavailable: %s. Try again in a few seconds; unless the runner is shutting down, it starts Triton again."
#define E2106_OVERLOADED "E2106 Overloaded: %s %s already; no more are accepted. Try again in a few seconds; the operator can %s."
#define E2400_ENGINE_PROCESS_DIED "E2400 EngineProcessDied: The engine process ended in the middle of this request: %s. Try again in a few seconds; unless it has died too often, it is being restarted."
#define E2401_ENGINE_NOT_READY "E2401 EngineNotReady: The engine is not ready. Try again in a few seconds; if it persists, check /health-check and the log."
#define E2402_ENGINE_GAVE_UP "E2402 EngineGaveUp: The engine process has died and will not be restarted. Check the log for why it died, then restart the runner."
#define E2403_MALFORMED_REQUEST "E2403 MalformedRequest: The request violates the tensor contract: %s. Send what Triton lists at `GET /v2/models/MODEL` over HTTP; docs/triton.md says more."
#define E2406_BRIDGE_MISCONFIGURED "E2406 BridgeMisconfigured: The engine bridge cannot start: %s. Make the directory of its socket (below TMPDIR) writable, raise the limit on open files if it is reached, write the model repository again with this version of cog-triton, or use the version of Triton that its images have."
#define E2407_ENGINE_START_FAILED "E2407 EngineStartFailed: The engine process cannot serve: %s. If a file of the engine is at fault, build or download it again; if it was not ready in time, raise ENGINE_START_TIMEOUT; otherwise, the log of the engine process says more."
#define E2408_HOSTS_MISSING "E2408 HostsMissing: The engine does not have all of the hosts that it needs: %s. Run `cog-triton join` on more hosts, and check HOSTS_ADDRESS: this host listens there, and they must reach it."
