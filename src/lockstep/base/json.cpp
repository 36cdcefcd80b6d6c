#include "lockstep/base/json.h"

LOCKSTEP_JSON_CLASSES(, nlohmann::basic_json<>);
LOCKSTEP_JSON_CLASSES(, nlohmann::basic_json<nlohmann::ordered_map>);
