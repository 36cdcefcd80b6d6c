#pragma once

// nlohmann-json with its classes instantiated once, in json.cpp: a file that instantiates them
// again compiles 2 to 3 s longer. Only lockstep's sources include this header; it is not installed.

#include <nlohmann/json.hpp>
#include <string>

// For json and ordered_json: values, serialization, and parsing of strings and string views.
#define LOCKSTEP_JSON_CLASSES(prefix, json)                                                  \
  prefix template class json;                                                                \
  prefix template class nlohmann::detail::serializer<json>;                                  \
  prefix template class nlohmann::detail::json_sax_dom_parser<json>;                         \
  LOCKSTEP_JSON_PARSER(prefix, json, nlohmann::detail::iterator_input_adapter<const char*>); \
  LOCKSTEP_JSON_PARSER(prefix, json,                                                         \
                       nlohmann::detail::iterator_input_adapter<std::string::const_iterator>)
#define LOCKSTEP_JSON_PARSER(prefix, json, input)             \
  prefix template class nlohmann::detail::lexer<json, input>; \
  prefix template class nlohmann::detail::parser<json, input>

LOCKSTEP_JSON_CLASSES(extern, nlohmann::basic_json<>);
LOCKSTEP_JSON_CLASSES(extern, nlohmann::basic_json<nlohmann::ordered_map>);
