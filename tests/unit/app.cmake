quarrel_test(app_test LABEL unit SOURCES app_parameters_test.cpp app_reference_test.cpp app_text_test.cpp LINKS quarrel_app quarrel_test_support)
