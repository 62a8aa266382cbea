"""Feedback sources for refine loops: self-feedback of the model and external feedback."""

from evalbias.programs.feedback.concepts import ConceptsFeedback, ExactConcepts
from evalbias.programs.feedback.consistency import ConsistencyFeedback, ExactAnswer
from evalbias.programs.feedback.instructscore import InstructScore
from evalbias.programs.feedback.judged import JudgeFeedback
from evalbias.programs.feedback.learned import LearnedFeedback
from evalbias.programs.feedback.mapped import MappedFeedback
from evalbias.programs.feedback.mqm import MQMFeedback
from evalbias.programs.feedback.reference import ReferenceFeedback, ScorerFeedback
from evalbias.programs.feedback.source import Feedback, FeedbackSource

__all__ = [
    "ConceptsFeedback",
    "ConsistencyFeedback",
    "ExactAnswer",
    "ExactConcepts",
    "Feedback",
    "FeedbackSource",
    "InstructScore",
    "JudgeFeedback",
    "LearnedFeedback",
    "MQMFeedback",
    "MappedFeedback",
    "ReferenceFeedback",
    "ScorerFeedback",
]
