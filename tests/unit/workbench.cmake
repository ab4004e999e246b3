quarrel_test(app_workbench_test LABEL unit
  SOURCES
    workbench_coherence_test.cpp
    workbench_perplexity_test.cpp
    workbench_statistics_test.cpp
    workbench_suite_test.cpp
    workbench_token_list_test.cpp
  LINKS quarrel_app quarrel_test_support)
