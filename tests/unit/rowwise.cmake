quarrel_test(rowwise_test LABEL unit threads
  SOURCES
    rowwise_activations_test.cpp
    rowwise_half_test.cpp
    rowwise_norms_test.cpp
    rowwise_sampling_test.cpp
    rowwise_ssm_test.cpp
  LINKS quarrel_cpu)
