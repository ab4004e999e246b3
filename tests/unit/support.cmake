quarrel_test(support_test LABEL unit SOURCES toy_model_test.cpp LINKS quarrel_test_support)

# The house rules that a compiler does not see, and that their checker would notice a breach.
add_test(NAME check_source COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_source.py)
add_test(NAME check_source_self_test
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_source.py --self-test)
set_tests_properties(check_source check_source_self_test PROPERTIES LABELS unit TIMEOUT 60)
