find_package(nlohmann_json REQUIRED)

quarrel_test(text_template_test LABEL unit
  SOURCES
    chat_template_cases_test.cpp
    chat_template_golden_test.cpp
    chat_template_origin_test.cpp
    chat_template_limits_test.cpp
    chat_template_hostile_test.cpp
    chat_template_defaults_test.cpp
  LINKS quarrel_text nlohmann_json::nlohmann_json)
