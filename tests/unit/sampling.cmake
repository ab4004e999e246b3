quarrel_test(sampling_test LABEL unit
  SOURCES sampling_distribution_test.cpp sampling_random_test.cpp sampling_rules_test.cpp sampling_state_test.cpp
  LINKS quarrel_backend)
